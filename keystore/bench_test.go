package keystore

import "testing"

// BenchmarkParse is what keypostd does once for each key set when it starts.
func BenchmarkParse(b *testing.B) {
	for name, s := range map[string]KeySet{"small": newSet(b, Policy{}), "full": fullSet(b)} {
		doc := []byte(encode(b, s))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse("prod-a", doc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
