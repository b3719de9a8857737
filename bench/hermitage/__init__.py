"""Hermitage: which anomalies an isolation level, a mix of features, or a peer lets through."""
