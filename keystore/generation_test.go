package keystore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func atGeneration(t *testing.T, n int64) KeySet {
	t.Helper()
	d := tree(t, newSet(t, awsPolicy()))
	specOf(d)["generation"] = n
	s, err := parseTree(d)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Somebody stores a generation that nothing could follow. The store heals by a command, and then goes on.
func TestAcceptLowersAGenerationOutOfReach(t *testing.T) {
	for _, tt := range []struct {
		stored, served, want int64
	}{
		{MaxGeneration, 0, 1},
		{MaxGeneration, 7, 8},
		{MaxGeneration - 1, 7, 8},
		{MaxFirstGeneration, 7, 8},
		{7 + MaxGenerationJump, 7, 8}, // its next generation would be too far
		{6 + MaxGenerationJump, 7, 7 + MaxGenerationJump},
		{6, 7, 8},
		{9, 7, 10},
		{9, 0, 10},
	} {
		st := &shelf{doc: must(Encode(atGeneration(t, tt.stored))), rev: 1}
		name := fmt.Sprintf("stored %d, served %d", tt.stored, tt.served)
		s, err := Update(t.Context(), NewStore(st), "prod-a", func(s KeySet) (KeySet, error) { return s.Accept(because(openDay, "x"), tt.served, Decided{}) })
		if err != nil || s.Generation() != tt.want || st.load(t).Generation() != tt.want {
			t.Errorf("%s: generation %d, want %d, error %v", name, s.Generation(), tt.want, err)
			continue
		}
		var served *KeySet
		if tt.served > 0 {
			was := atGeneration(t, tt.served)
			served = &was
		}
		follows(t, name+": what was accepted", s, served)
		if _, err := Update(t.Context(), NewStore(st), "prod-a", func(s KeySet) (KeySet, error) {
			return s.Revoke(because(openDay, "lost"), testKey(0).ID(), RevokeOptions{LeaveEmpty: true})
		}); err != nil {
			t.Errorf("%s: then the key cannot be revoked: %v", name, err)
		}
	}
	if _, err := atGeneration(t, 9).Accept(because(openDay, "x"), MaxGeneration, Decided{}); err == nil || !strings.Contains(err.Error(), "restart keypostd") {
		t.Errorf("keypostd serves a generation out of reach: error %v", err)
	}
}

func TestUpdateSaysWhatToDoAboutAGenerationOutOfReach(t *testing.T) {
	for _, stored := range []int64{MaxGeneration, MaxFirstGeneration} {
		st := &shelf{doc: must(Encode(atGeneration(t, stored))), rev: 1}
		_, err := Update(t.Context(), NewStore(st), "prod-a", addKey(3))
		var refused *GenerationError
		if !errors.As(err, &refused) || refused.KeySet != "prod-a" || refused.Generation != stored || st.replaces != 0 {
			t.Errorf("stored %d: error %v", stored, err)
		}
	}
}
