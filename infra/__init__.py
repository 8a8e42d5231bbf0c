"""What the project runs on: the servers of one machine, and the installation."""
