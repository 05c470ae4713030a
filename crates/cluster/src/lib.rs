//! Access to one API server: cache, queue, writer, clock.
