package verify

// clusterCauses are what can be wrong with the cluster whose tokens an issuer stands for.
func clusterCauses() []Cause { return nil }
