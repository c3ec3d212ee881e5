package sql

// SetHeldBytes makes a query hold less than maxHeldBytes.
func (e *Engine) SetHeldBytes(n int64) { e.most = n }
