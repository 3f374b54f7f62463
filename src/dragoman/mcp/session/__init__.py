"""What goes on between one host and this server: questions, tasks, resources."""
