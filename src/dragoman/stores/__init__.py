"""Where tasks are kept: a journal of events per task, behind one port."""
