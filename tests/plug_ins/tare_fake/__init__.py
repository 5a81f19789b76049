"""A technology that measures nothing: a plug-in of another package, as the tests of tare need one."""
