package party

import "time"

const entraPage = "https://learn.microsoft.com/en-us/entra/workload-id/workload-identity-federation-considerations"

// entra is a federated identity credential of an app or of a managed identity.
func entra() Party {
	return Party{
		Name: "entra", Title: "Microsoft Entra", Called: []string{"azure", "microsoft", "aad"}, Keeps: 24 * time.Hour, Takes: []string{"RS256"},
		Given: []Fact{
			{Says: "discovery, from the issuer of the federated credential"},
		},
		Keeping: []Fact{
			{Says: "24 h is an allowance: Microsoft documents nothing of other issuers' keys"},
		},
		Signed: Fact{
			Says: "RS256",
			Page: entraPage,
			Quote: "Only issuers that provide tokens signed using the RS256 algorithm are supported for token exchange " +
				"using workload identity federation.",
		},
		Audience: Fact{
			Says: "one: api://AzureADTokenExchange",
			Page: entraPage,
			Quote: "The value must be \"api://AzureADTokenExchange\" and must match the value of the aud claim in the " +
				"Managed Identity token.",
		},
		Limits: []Fact{
			{
				Says: "20 credentials for an app or identity",
				Page: entraPage,
				Quote: "A maximum of 20 federated identity credentials can be added to an application or user-assigned " +
					"managed identity.",
			},
			{
				Says:  "the issuer URL has at most 600 characters",
				Page:  entraPage,
				Quote: "This field has a character limit of 600 characters.",
			},
			{
				Says: "a new credential takes minutes",
				Page: entraPage,
				Quote: "A token request made several minutes after configuring the federated identity credential may fail " +
					"because the cache is populated in the directory with old data.",
			},
		},
		Fetch: Fact{Says: "not shown"},
		Ends: []Fact{
			{Says: "deleting the federated credentials; access tokens that were given out live on until they end"},
		},
		Refusals: []Fact{
			{
				Says:  "no credential for the issuer, subject or audience",
				Page:  entraPage,
				Quote: "AADSTS70021: No matching federated identity record found for presented assertion.",
			},
		},
		ends: []string{
			"entra until {until}; to end it now, delete the federated credentials that name this issuer; access " +
				"tokens that it has given out live on for an hour and more:",
			"  az identity federated-credential delete --name NAME --identity-name IDENTITY --resource-group GROUP",
			"  az ad app federated-credential delete --id APP --federated-credential-id NAME",
		},
	}
}
