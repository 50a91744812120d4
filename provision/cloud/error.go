package cloud

// Error is an error about which the caller can do something. Each cloud has problems of its own.
type Error[P comparable] struct {
	Problem P
	Err     error
}

func (e *Error[P]) Error() string { return e.Err.Error() }
func (e *Error[P]) Unwrap() error { return e.Err }
