package keystore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
)

// Reach is who can read an issuer's documents, where that is not everybody. Whether the addresses are public is [Policy.Private].
type Reach string

// ReachCopies is that nobody can: relying parties go by the JWKS that was uploaded to them, so that the gates ask for those
// uploads and for no look at a public address.
const ReachCopies Reach = "copies"

// An upload is a relying party that holds a copy of the JWKS, which stays as it is until somebody uploads another one. A policy
// names it KIND-upload:PLACE among its relying parties.
const uploadInfix = "-upload:"

// maxUpload bounds the name of an upload, in bytes.
const maxUpload = 512

// IsUpload reports whether a policy's relying party is one that holds an upload.
func IsUpload(party string) bool { return strings.Contains(party, uploadInfix) }

// UploadKind returns the kind of an upload, by which whoever uploads to it is chosen, and its place.
func UploadKind(party string) (kind, place string) {
	kind, place, _ = strings.Cut(party, uploadInfix)
	return kind, place
}

// UploadKinds returns the kinds of uploads that somebody in this version uploads to.
func UploadKinds() []string { return []string{"gcp"} }

// KnownUpload reports whether there is somebody in this version who uploads to a relying party.
func KnownUpload(party string) bool {
	kind, _ := UploadKind(party)
	return IsUpload(party) && slices.Contains(UploadKinds(), kind)
}

// Uploads returns the relying parties that hold an upload.
func (p Policy) Uploads() []string {
	return slices.DeleteFunc(slices.Clone(p.RelyingParties), func(party string) bool { return !IsUpload(party) })
}

// WithUpload returns the policy with an upload in the place of the relying party that its kind is named after, which fetches nothing then.
func (p Policy) WithUpload(upload string) Policy {
	kind, _ := UploadKind(upload)
	others := slices.DeleteFunc(slices.Clone(p.RelyingParties), func(party string) bool { return party == kind })
	p.RelyingParties = append(others, upload)
	return p
}

// Parties returns the relying parties, of which those that hold an upload have their kind's name: they judge a token as who fetches.
func (p Policy) Parties() (all []string) {
	for _, party := range p.RelyingParties {
		if IsUpload(party) {
			party, _ = UploadKind(party)
		}
		if !slices.Contains(all, party) {
			all = append(all, party)
		}
	}
	return all
}

// checkUpload checks the name of an upload. A kind that is not known here may be one of a later version: it is read, and as
// nothing can be read back from it here, the gates stay closed.
func checkUpload(party string) error {
	kind, place, marked := strings.Cut(party, uploadInfix)
	switch {
	case !marked || Name(kind).Check() != nil || place == "" || len(party) > maxUpload || strings.ContainsFunc(place, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("policy: relying party %q is neither a name such as aws, gcp, entra, vault or kube-apiserver nor an upload, KIND-upload:PLACE, such as %s", printable(party), exampleUpload)
	case kind == "gcp" && !isProvider(place):
		return fmt.Errorf("policy: relying party %q is no provider of a workload identity pool: write it with the project's number, as %s, where POOL and PROVIDER are 4 to 32 of a-z, 0-9 and hyphens",
			printable(party), exampleUpload)
	}
	return nil
}

const exampleUpload = "gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/POOL/providers/PROVIDER"

// isProvider reports whether place is the resource name of a provider of a workload identity pool. The project is a number: by its ID
// one provider would have two names, and a deleted project's ID may become another's.
//
// Source: https://cloud.google.com/iam/docs/reference/rest/v1/projects.locations.workloadIdentityPools.providers
func isProvider(place string) bool {
	parts := strings.Split(place, "/")
	if len(parts) != 8 {
		return false
	}
	for i, fixed := range map[int]string{0: "projects", 2: "locations", 3: "global", 4: "workloadIdentityPools", 6: "providers"} {
		if parts[i] != fixed {
			return false
		}
	}
	number := parts[1] != "" && parts[1][0] != '0' && !strings.ContainsFunc(parts[1], func(r rune) bool { return r < '0' || r > '9' })
	return number && len(parts[1]) <= 19 && IsPoolID(parts[5]) && IsPoolID(parts[7])
}

// IsPoolID reports whether Google takes id as that of a workload identity pool or of a provider: 4 to 32 of a-z, 0-9 and hyphens, and
// not with the prefix gcp-, which Google keeps to itself
// (https://cloud.google.com/iam/docs/reference/rest/v1/projects.locations.workloadIdentityPools/create).
func IsPoolID(id string) bool {
	return len(id) >= 4 && len(id) <= 32 && !strings.HasPrefix(id, "gcp-") && !strings.ContainsFunc(id, func(r rune) bool {
		return r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
}

// checkReach checks who reads the documents, and that with [ReachCopies] only uploads do: of whom else would be known only by a
// look that nobody makes.
func (p Policy) checkReach() error {
	switch p.Reach {
	case "":
		return nil
	case ReachCopies:
	default:
		return fmt.Errorf("policy: reach is %q; leave it out, or write copies where relying parties hold an uploaded JWKS and read nothing", printable(string(p.Reach)))
	}
	if len(p.Uploads()) == 0 {
		return fmt.Errorf("policy: reach is copies, and relyingParties names none that holds one; name it as %s", exampleUpload)
	}
	for _, party := range p.RelyingParties {
		if !IsUpload(party) {
			return fmt.Errorf("policy: reach is copies, but the relying party %s reads the documents; leave it or the reach out", printable(party))
		}
	}
	return nil
}

// uploadAllowance returns how long a relying party may go on by what it held before an upload, after that is read back: reading
// it back asks the control plane, and not the servers that check tokens.
//
// Nobody documents it. IAM says of its changes that they take two minutes as a rule, and seven or more at times, so that GCP
// counts as it does where it fetches: https://cloud.google.com/iam/docs/access-change-propagation
func uploadAllowance(party string) time.Duration {
	if kind, _ := UploadKind(party); kind == "gcp" {
		return allowance(kind)
	}
	return 24 * time.Hour
}

// Uploads is what was read back of uploads. It is the evidence of gates, as [Observed] is.
type Uploads []ReadBack

// ReadBack is what was read back of one upload.
type ReadBack struct {
	Upload     string    // as the policy names it
	At         time.Time // when it was read last
	ClockAhead Duration  // the clock of who read it beyond that of the server; zero also if not known
	Keys       []ReadKey // that it had then
}

// ReadKey is a key of an upload, and since when every reading had it.
type ReadKey struct {
	ID          KeyID
	Fingerprint Fingerprint
	Since       time.Time
}

// Of returns what was read back of an upload, and whether anything was.
func (u Uploads) Of(party string) (ReadBack, bool) {
	i := slices.IndexFunc(u, func(r ReadBack) bool { return r.Upload == party })
	if i < 0 || u[i].At.IsZero() {
		return ReadBack{}, false
	}
	return u[i], true
}

// Since returns since when the upload has a key, and whether it does.
func (r ReadBack) Since(k VerificationKey) (time.Time, bool) {
	i := slices.IndexFunc(r.Keys, func(have ReadKey) bool { return have.ID == k.id && have.Fingerprint == k.fingerprint })
	if i < 0 || r.Keys[i].Since.IsZero() {
		return time.Time{}, false
	}
	return r.Keys[i].Since, true
}

// holding is what was read back of all uploads that a policy names, about keys that each of them has to have.
type holding struct {
	clock, missing, stale string    // what is wrong, for a refusal; empty if nothing is
	since                 time.Time // since when all have the keys, zero if one has not
	opens                 time.Time // when no relying party may go by an older copy any more
	terms                 []Term    // of opens
	last                  string    // the upload that opens last
}

// held returns what was read back of the uploads about keys. Without an upload nothing is wrong, and all is open.
func (s KeySet) held(read Uploads, now time.Time, keys ...Key) (h holding) {
	var lacking, old []string
	for _, party := range s.policy.Uploads() {
		shown := text.OneLine(party, 300)
		r, was := read.Of(party)
		if !was {
			lacking = append(lacking, shown+", of which no reading is known here")
			continue
		}
		if off := r.clock(now); off != "" && h.clock == "" {
			h.clock = shown + off
		}
		for _, k := range keys {
			since, has := r.Since(k.VerificationKey)
			if !has {
				lacking = append(lacking, fmt.Sprintf("%s, read back at %s, without %s", shown, stamp(r.At), k.ID()))
				continue
			}
			h.since = later(h.since, later(since, k.PublishedAt))
			if opens, terms := s.uploadOpens(party, later(since, k.PublishedAt)); opens.After(h.opens) {
				h.opens, h.terms, h.last = opens, terms, shown
			}
		}
		if now.Sub(r.At) > ObservationFresh {
			old = append(old, fmt.Sprintf("%s at %s", shown, stamp(r.At)))
		}
	}
	if len(lacking) > 0 {
		h.since, h.missing = time.Time{}, "an uploaded copy may lack the key, whose tokens would be refused there ("+text.List(lacking, 3)+"); upload the published keys, and read them back"
	}
	if len(old) > 0 {
		h.stale = fmt.Sprintf("an uploaded copy was read back last more than %v ago (%s), and somebody may have replaced it since; read it back again", Duration(ObservationFresh), text.List(old, 3))
	}
	return h
}

// uploadOpens is the arithmetic of one upload that has had a key since a time.
func (s KeySet) uploadOpens(party string, since time.Time) (time.Time, []Term) {
	allowed := s.unlessDev(uploadAllowance(party))
	terms := []Term{{"upload", allowed}}
	if !s.dev {
		terms = append(terms, Term{"clocks", clocks})
		return since.Add(allowed + clocks), terms
	}
	return since.Add(allowed), terms
}

// clock returns what is wrong with the clocks, as the end of a sentence about the upload.
func (r ReadBack) clock(now time.Time) string {
	latest := r.At
	for _, k := range r.Keys {
		latest = later(latest, k.Since)
	}
	switch ahead := time.Duration(r.ClockAhead); {
	case latest.After(now.Add(ClockTolerance)):
		return fmt.Sprintf(" was read back at %s, which lies in the future by this machine's clock; check the clocks of this machine and of who uploaded", stamp(latest))
	case ahead.Abs() > ClockTolerance:
		return fmt.Sprintf(" was read back by a machine whose clock differs by %v from the server's; set the one that is wrong, and read it back again", Duration(ahead.Abs()))
	}
	return ""
}

// lacks returns the refusal where an act is missing, nil where none is: it comes before what opens by itself.
func (h holding) lacks(step string, id KeyID) *NotYetError {
	switch {
	case h.clock != "":
		return &NotYetError{Step: step, Key: id, Gate: GateClock, Need: h.clock}
	case h.missing != "":
		return &NotYetError{Step: step, Key: id, Gate: GateCopies, Need: h.missing}
	}
	return nil
}

// waits returns the refusal where time is missing, or a reading of late, which comes last: it would be old again after the wait.
func (h holding) waits(step string, id KeyID, now time.Time) *NotYetError {
	e := &NotYetError{Step: step, Key: id, Gate: GateCopies}
	switch {
	case now.Before(h.opens):
		e.Need, e.Opens, e.Terms = "a relying party may still go by what it held before the upload ("+h.last+")", h.opens, h.terms
	case h.stale != "":
		e.Need = h.stale
	default:
		return nil
	}
	return e
}
