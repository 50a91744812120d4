package awsiam

func explain(err error) error { return err }
