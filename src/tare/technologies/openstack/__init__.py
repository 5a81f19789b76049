"""Technology `openstack`."""
