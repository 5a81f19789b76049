// Network interfaces, addresses and routes through rtnetlink(7). Each function works in the current network namespace,
// and returns false with errno on failure.

#ifndef TARE_NETLINK_H
#define TARE_NETLINK_H

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PREFIX_LENGTH = 24, MAC_LENGTH = 6 };

struct message {
    struct nlmsghdr head;
    char body[1024];
};

static void *add_body(struct message *message, const void *data, size_t size) {
    char *end = (char *)message + NLMSG_ALIGN(message->head.nlmsg_len);
    if (data)
        memcpy(end, data, size);
    message->head.nlmsg_len = NLMSG_ALIGN(message->head.nlmsg_len) + (unsigned)size;
    return end;
}

static struct rtattr *add_attribute(struct message *message, unsigned short type, const void *data, size_t size) {
    struct rtattr attribute = {.rta_len = (unsigned short)RTA_LENGTH(size), .rta_type = type};
    struct rtattr *start = add_body(message, &attribute, sizeof attribute);
    if (size)
        add_body(message, data, size);
    return start;
}

static void close_attribute(const struct message *message, struct rtattr *outer) {
    outer->rta_len = (unsigned short)((const char *)message + message->head.nlmsg_len - (const char *)outer);
}

static struct message begin_message(unsigned short type, unsigned short flags, const void *data, size_t size) {
    struct message message = {
        .head = {.nlmsg_len = NLMSG_HDRLEN, .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags}};
    add_body(&message, data, size);
    return message;
}

static bool send_to_kernel(const struct message *message) {
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[2048];
    } reply = {0};
    const int kernel = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (kernel < 0)
        return false;
    bool sent = send(kernel, message, message->head.nlmsg_len, 0) >= 0;
    sent = sent && recv(kernel, &reply, sizeof reply, 0) >= (ssize_t)(sizeof reply.head + sizeof reply.error.error);
    const int error = sent ? -reply.error.error : errno;
    close(kernel);
    errno = error;
    return error == 0;
}

// Create the interface `port` on a bridge, and its peer `eth0` with this MAC address in another network namespace.
static bool create_veth_pair(const char *port, unsigned bridge, int inside, const char *mac) {
    unsigned char address[MAC_LENGTH];
    if (sscanf(mac, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", address, address + 1, address + 2, address + 3, address + 4,
               address + 5) != MAC_LENGTH) {
        errno = EINVAL;
        return false;
    }
    const struct ifinfomsg up = {.ifi_family = AF_UNSPEC, .ifi_flags = IFF_UP, .ifi_change = IFF_UP}, unchanged = {0};
    struct message message = begin_message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &up, sizeof up);
    add_attribute(&message, IFLA_IFNAME, port, strlen(port) + 1);
    add_attribute(&message, IFLA_MASTER, &bridge, sizeof bridge);
    struct rtattr *link_info = add_attribute(&message, IFLA_LINKINFO, NULL, 0);
    add_attribute(&message, IFLA_INFO_KIND, "veth", sizeof "veth");
    struct rtattr *data = add_attribute(&message, IFLA_INFO_DATA, NULL, 0);
    struct rtattr *peer = add_attribute(&message, VETH_INFO_PEER, NULL, 0);
    add_body(&message, &unchanged, sizeof unchanged);
    add_attribute(&message, IFLA_IFNAME, "eth0", sizeof "eth0");
    add_attribute(&message, IFLA_ADDRESS, address, sizeof address);
    add_attribute(&message, IFLA_NET_NS_FD, &inside, sizeof inside);
    close_attribute(&message, peer);
    close_attribute(&message, data);
    close_attribute(&message, link_info);
    return send_to_kernel(&message);
}

static bool set_up(const char *interface) {
    const struct ifinfomsg up = {
        .ifi_index = (int)if_nametoindex(interface), .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    const struct message message = begin_message(RTM_NEWLINK, 0, &up, sizeof up);
    return send_to_kernel(&message);
}

static bool detach_from_bridge(unsigned port) {
    const struct ifinfomsg interface = {.ifi_index = (int)port};
    struct message message = begin_message(RTM_SETLINK, 0, &interface, sizeof interface);
    add_attribute(&message, IFLA_MASTER, &(unsigned){0}, sizeof(unsigned));
    return send_to_kernel(&message);
}

static bool delete_interface(unsigned interface) {
    const struct ifinfomsg request = {.ifi_index = (int)interface};
    const struct message message = begin_message(RTM_DELLINK, 0, &request, sizeof request);
    return send_to_kernel(&message);
}

static bool add_address(const char *interface, const char *text) {
    struct in_addr address;
    const struct ifaddrmsg request = {
        .ifa_family = AF_INET, .ifa_prefixlen = PREFIX_LENGTH, .ifa_index = if_nametoindex(interface)};
    struct message message = begin_message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &request, sizeof request);
    errno = EINVAL;
    if (inet_pton(AF_INET, text, &address) != 1)
        return false;
    add_attribute(&message, IFA_LOCAL, &address, sizeof address);
    add_attribute(&message, IFA_ADDRESS, &address, sizeof address);
    return send_to_kernel(&message);
}

// Add the default route.
static bool add_route(const char *router) {
    struct in_addr address;
    const struct rtmsg request = {.rtm_family = AF_INET,
                                  .rtm_table = RT_TABLE_MAIN,
                                  .rtm_protocol = RTPROT_BOOT,
                                  .rtm_scope = RT_SCOPE_UNIVERSE,
                                  .rtm_type = RTN_UNICAST};
    struct message message = begin_message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &request, sizeof request);
    errno = EINVAL;
    if (inet_pton(AF_INET, router, &address) != 1)
        return false;
    add_attribute(&message, RTA_GATEWAY, &address, sizeof address);
    return send_to_kernel(&message);
}

#endif
