"""Many machines: one suite spread over them by Ansible, whose connections, users and secrets it uses."""
