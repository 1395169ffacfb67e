"""Operations among replicas and processes: collectives, exchanges, channels, and what they cost."""
