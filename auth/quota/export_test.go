package quota

// Len is how many balances are kept.
func (q *Quotas) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.balances)
}
