"""Task stores: a journal of events per task, behind the port `dragoman.engine.ports.store.Store`."""
