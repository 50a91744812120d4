// Package audience knows for whom tokens are made: which audiences the relying parties ask for where nobody says otherwise, and
// which one is the cluster's own.
package audience

import (
	"slices"
	"strings"

	"github.com/keypost/keypost/issuer/verify/finding"
)

// openshift is what the cloud credential operator's pods ask for, whatever the cloud.
const openshift = "openshift"

// Of returns the audiences that a relying party asks for by default, the usual one first; one that ends in a slash stands for all
// that begin with it. It returns none for a party whose audience the one who runs it chooses.
//
// Sources: https://docs.aws.amazon.com/eks/latest/userguide/iam-roles-for-service-accounts.html (China has its own),
// https://cloud.google.com/iam/docs/workload-identity-federation-with-kubernetes,
// https://learn.microsoft.com/entra/workload-id/workload-identity-federation-create-trust (and its clouds for the US government and
// China).
func Of(party string) []string {
	switch party {
	case finding.AWS:
		return []string{"sts.amazonaws.com", "sts.amazonaws.com.cn", openshift}
	case finding.GCP:
		return []string{"//iam.googleapis.com/", "https://iam.googleapis.com/", openshift}
	case finding.Entra:
		return []string{"api://AzureADTokenExchange", "api://AzureADTokenExchangeUSGov", "api://AzureADTokenExchangeChina", openshift}
	}
	return nil
}

// IsOf reports whether a relying party asks for an audience by default.
func IsOf(party, audience string) bool {
	return slices.ContainsFunc(Of(party), func(known string) bool {
		return audience == known || strings.HasSuffix(known, "/") && strings.HasPrefix(audience, known)
	})
}

// IsClouds reports whether any cloud asks for an audience by default.
func IsClouds(audience string) bool {
	return slices.ContainsFunc([]string{finding.AWS, finding.GCP, finding.Entra}, func(cloud string) bool { return IsOf(cloud, audience) })
}

// IsClusters reports whether an audience is that of the kube-apiserver itself: one of its issuers, which it has as audiences by
// default, or what clusters without an issuer URL of their own use.
func IsClusters(audience string, issuers ...string) bool {
	return slices.Contains(issuers, audience) || strings.HasPrefix(audience, "https://kubernetes.default.svc")
}

// MayBeClusters reports whether an audience is the kube-apiserver's, or may be: it is a URL, as issuers are, and no cloud asks for it by
// default. It may be an issuer of before. Where it is trusted, the token that every pod has anyway is good.
func MayBeClusters(audience string, issuers ...string) bool {
	return IsClusters(audience, issuers...) || strings.HasPrefix(audience, "https://") && !IsClouds(audience)
}

// ToTry returns the audience that stands for those of the declared relying parties: of AWS where none is declared, and none where
// each has its own, as GCP's are the names of its providers.
func ToTry(parties []string) []string {
	if len(parties) == 0 {
		parties = []string{finding.AWS}
	}
	for _, party := range []string{finding.AWS, finding.Entra} {
		if slices.Contains(parties, party) {
			return Of(party)[:1]
		}
	}
	return nil
}
