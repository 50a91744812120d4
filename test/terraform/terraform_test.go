// Package terraform reads the Terraform files of docs/ as HCL: they are written as they should be, refer to nothing that they have
// not, and the figures of docs/cdn/cloudfront.tf are those of docs/cdn/README.md. Whether AWS takes them is not known here.
package terraform

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
)

const (
	cloudfront = "../../docs/cdn/cloudfront.tf"
	whole      = "../../docs/gitops/terraform/main.tf" // which has cloudfront as a module
)

func body(t *testing.T, file string) *hclsyntax.Body {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(hclwrite.Format(text), text) {
		t.Error("it is not formatted as terraform fmt does")
	}
	parsed, diags := hclsyntax.ParseConfig(text, file, hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return parsed.Body.(*hclsyntax.Body)
}

// names returns what expressions of a file may name, and of variables and outputs only those.
func names(b *hclsyntax.Body) (all, variables, outputs map[string]bool) {
	// Of dynamic blocks, types, each resource's own and Terraform's own.
	all = map[string]bool{"custom_error_response.value": true, "string": true, "each.key": true, "each.value": true, "path.module": true, "aws.us_east_1": true}
	variables, outputs = map[string]bool{}, map[string]bool{}
	for _, block := range b.Blocks {
		switch block.Type {
		case "variable":
			variables[block.Labels[0]] = true
			all["var."+block.Labels[0]] = true
		case "output":
			outputs[block.Labels[0]] = true
		case "data":
			all["data."+strings.Join(block.Labels, ".")] = true
		case "resource":
			all[strings.Join(block.Labels, ".")] = true
		case "module":
			all["module."+block.Labels[0]] = true
		}
	}
	return all, variables, outputs
}

// Every var., data., module and resource that an expression names is in the file, and every variable is named.
func TestNamesWhatIsThere(t *testing.T) {
	_, _, outputs := names(body(t, cloudfront))
	for _, file := range []string{cloudfront, whole} {
		b := body(t, file)
		there, variables, _ := names(b)
		named := map[string]bool{}
		_ = hclsyntax.VisitAll(b, func(n hclsyntax.Node) hcl.Diagnostics {
			local, ok := n.(*hclsyntax.ForExpr)
			if ok {
				there[local.ValVar] = true
			}
			e, ok := n.(*hclsyntax.ScopeTraversalExpr)
			if !ok {
				return nil
			}
			var parts []string
			for _, step := range e.Traversal {
				switch step := step.(type) {
				case hcl.TraverseRoot:
					parts = append(parts, step.Name)
				case hcl.TraverseAttr:
					parts = append(parts, step.Name)
				}
			}
			length := 2
			if parts[0] == "data" {
				length = 3
			}
			name := strings.Join(parts[:min(length, len(parts))], ".")
			if named[name] = true; !there[name] && !there[parts[0]] {
				t.Errorf("%s: %s is named and not there", file, name)
			}
			if parts[0] == "module" && !outputs[parts[2]] {
				t.Errorf("%s: %s is not an output of %s", file, strings.Join(parts, "."), cloudfront)
			}
			return nil
		})
		if len(named) < 6 {
			t.Errorf("%s: only %d names were found", file, len(named))
		}
		for v := range variables {
			if !named["var."+v] {
				t.Errorf("%s: var.%s is not used", file, v)
			}
		}
	}
}

// The module gets each of its variables and no others.
func TestModuleGetsItsVariables(t *testing.T) {
	_, variables, _ := names(body(t, cloudfront))
	for _, block := range body(t, whole).Blocks {
		if block.Type != "module" {
			continue
		}
		for name := range block.Body.Attributes {
			if name != "source" && !variables[name] {
				t.Errorf("%s has no variable %s", cloudfront, name)
			}
		}
		for v := range variables {
			if block.Body.Attributes[v] == nil {
				t.Errorf("%s gets no %s", cloudfront, v)
			}
		}
		return
	}
	t.Errorf("%s has no module", whole)
}

// attribute returns the text of an attribute at a path of block types, the first of each type.
func attribute(t *testing.T, text []byte, b *hclsyntax.Body, path ...string) string {
	t.Helper()
	for _, kind := range path[:len(path)-1] {
		var next *hclsyntax.Body
		for _, block := range b.Blocks {
			if next == nil && (block.Type == kind || len(block.Labels) > 0 && block.Labels[0] == kind) {
				next = block.Body
			}
		}
		if next == nil {
			t.Fatalf("there is no block %s of %v", kind, path)
		}
		b = next
	}
	a := b.Attributes[path[len(path)-1]]
	if a == nil {
		t.Fatalf("there is no attribute %v", path)
	}
	return string(a.Expr.Range().SliceBytes(text))
}

// The figures are those of the guide's table, row by row.
func TestFiguresOfTheGuide(t *testing.T) {
	b := body(t, cloudfront)
	text, err := os.ReadFile(cloudfront)
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/cdn/README.md")
	if err != nil {
		t.Fatal(err)
	}
	policy, distribution := "aws_cloudfront_cache_policy", "aws_cloudfront_distribution"
	at := func(path ...string) string { return attribute(t, text, b, path...) }
	for _, row := range []string{
		fmt.Sprintf("minimum TTL %s, default %s, maximum 86,700", at(policy, "min_ttl"), at(policy, "default_ttl")),
		fmt.Sprintf("| connection attempts, timeout | %s, %s s |", at(distribution, "origin", "connection_attempts"), at(distribution, "origin", "connection_timeout")),
		fmt.Sprintf("| response timeout, response completion timeout | %s s, %s s |", at(distribution, "origin", "custom_origin_config", "origin_read_timeout"), at(distribution, "origin", "response_completion_timeout")),
		fmt.Sprintf("404: %s s; 500, 502, 503, 504: 0", at(distribution, "custom_error_response", "error_caching_min_ttl")),
		fmt.Sprintf("`%s`", strings.Trim(at(distribution, "viewer_certificate", "minimum_protocol_version"), `"`)),
	} {
		if !strings.Contains(string(guide), row) {
			t.Errorf("docs/cdn/README.md does not have %q", row)
		}
	}
	if got := at(policy, "max_ttl"); got != "86700" {
		t.Errorf("max_ttl is %s", got)
	}
}

// settings returns every attribute below a block, by the types of the blocks around it; one that stands there again has #2 and so on.
func settings(text []byte, b *hclsyntax.Body, prefix string) map[string]string {
	all := map[string]string{}
	for name, a := range b.Attributes {
		all[prefix+name] = string(a.Expr.Range().SliceBytes(text))
	}
	seen := map[string]int{}
	for _, block := range b.Blocks {
		kind := strings.Join(append([]string{block.Type}, block.Labels...), " ")
		if seen[kind]++; seen[kind] > 1 {
			kind = fmt.Sprintf("%s#%d", kind, seen[kind])
		}
		maps.Copy(all, settings(text, block.Body, prefix+kind+"."))
	}
	return all
}

// Every setting of what CloudFront does is one that the guide gives a reason for, and each of those is there.
func TestSettings(t *testing.T) {
	text, err := os.ReadFile(cloudfront)
	if err != nil {
		t.Fatal(err)
	}
	for resource, want := range map[string]map[string]string{
		"aws_cloudfront_cache_policy": {
			"name":        `"keypost"`,
			"min_ttl":     "0",
			"default_ttl": "300",
			"max_ttl":     "86700",
			"parameters_in_cache_key_and_forwarded_to_origin.enable_accept_encoding_brotli":              "false",
			"parameters_in_cache_key_and_forwarded_to_origin.enable_accept_encoding_gzip":                "false",
			"parameters_in_cache_key_and_forwarded_to_origin.cookies_config.cookie_behavior":             `"none"`,
			"parameters_in_cache_key_and_forwarded_to_origin.headers_config.header_behavior":             `"none"`,
			"parameters_in_cache_key_and_forwarded_to_origin.query_strings_config.query_string_behavior": `"none"`,
		},
		"aws_cloudfront_origin_access_control": {
			"name":                              `"keypost-fallback"`,
			"origin_access_control_origin_type": `"s3"`,
			"signing_behavior":                  `"always"`,
			"signing_protocol":                  `"sigv4"`,
		},
		"aws_cloudfront_distribution": {
			"enabled":         "true",
			"is_ipv6_enabled": "true",
			"http_version":    `"http2"`,
			"aliases":         "[var.issuer_host]",

			"origin.origin_id":                                   `"keypostd"`,
			"origin.domain_name":                                 "var.origin_host",
			"origin.connection_attempts":                         "1",
			"origin.connection_timeout":                          "2",
			"origin.response_completion_timeout":                 "4",
			"origin.custom_header.name":                          `"X-Origin-Secret"`,
			"origin.custom_header.value":                         "var.origin_secret",
			"origin.custom_origin_config.http_port":              "80",
			"origin.custom_origin_config.https_port":             "443",
			"origin.custom_origin_config.origin_protocol_policy": `"https-only"`,
			"origin.custom_origin_config.origin_ssl_protocols":   `["TLSv1.2"]`,
			"origin.custom_origin_config.origin_read_timeout":    "3",

			"origin#2.origin_id":                `"fallback"`,
			"origin#2.domain_name":              "data.aws_s3_bucket.fallback.bucket_regional_domain_name",
			"origin#2.origin_path":              `"/${var.issuer_host}"`,
			"origin#2.origin_access_control_id": "aws_cloudfront_origin_access_control.fallback.id",
			"origin#2.connection_attempts":      "1",
			"origin#2.connection_timeout":       "1",

			"origin_group.origin_id":                      `"keypost"`,
			"origin_group.failover_criteria.status_codes": "[500, 502, 503, 504]",
			"origin_group.member.origin_id":               `"keypostd"`,
			"origin_group.member#2.origin_id":             `"fallback"`,

			"default_cache_behavior.target_origin_id":       `"keypost"`,
			"default_cache_behavior.cache_policy_id":        "aws_cloudfront_cache_policy.keypost.id",
			"default_cache_behavior.allowed_methods":        `["GET", "HEAD"]`,
			"default_cache_behavior.cached_methods":         `["GET", "HEAD"]`,
			"default_cache_behavior.viewer_protocol_policy": `"https-only"`,
			"default_cache_behavior.compress":               "false",

			"custom_error_response.error_code":            "404",
			"custom_error_response.error_caching_min_ttl": "60",

			"dynamic custom_error_response.for_each":                      "[500, 502, 503, 504]",
			"dynamic custom_error_response.content.error_code":            "custom_error_response.value",
			"dynamic custom_error_response.content.error_caching_min_ttl": "0",

			"restrictions.geo_restriction.restriction_type": `"none"`,

			"viewer_certificate.acm_certificate_arn":      "var.certificate_arn",
			"viewer_certificate.minimum_protocol_version": `"TLSv1.2_2021"`,
			"viewer_certificate.ssl_support_method":       `"sni-only"`,
		},
		"aws_vpc_security_group_ingress_rule": {
			"security_group_id": "var.origin_security_group_id",
			"prefix_list_id":    "data.aws_ec2_managed_prefix_list.cloudfront.id",
			"ip_protocol":       `"tcp"`,
			"from_port":         "443",
			"to_port":           "443",
		},
	} {
		var got map[string]string
		for _, block := range body(t, cloudfront).Blocks {
			if block.Type == "resource" && block.Labels[0] == resource {
				got = settings(text, block.Body, "")
			}
		}
		for name := range got {
			if _, known := want[name]; !known {
				t.Errorf("%s has %s = %s, which nobody has asked for", resource, name, got[name])
			}
		}
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s is %q, want %s", resource, name, got[name], value)
			}
		}
	}
}

// CloudFront signs what it asks the bucket for (origin access control), which opens nothing by itself: a bucket policy lets this
// distribution read, and nobody else.
func TestBucketPolicy(t *testing.T) {
	b := body(t, cloudfront)
	text, err := os.ReadFile(cloudfront)
	if err != nil {
		t.Fatal(err)
	}
	at := func(path ...string) string { return attribute(t, text, b, path...) }
	for _, tt := range []struct {
		path []string
		want string
	}{
		{[]string{"aws_s3_bucket_policy", "bucket"}, "data.aws_s3_bucket.fallback.id"},
		{[]string{"aws_s3_bucket_policy", "policy"}, "data.aws_iam_policy_document.fallback.json"},
		{[]string{"aws_iam_policy_document", "statement", "actions"}, `["s3:GetObject"]`},
		{[]string{"aws_iam_policy_document", "statement", "resources"}, `["${data.aws_s3_bucket.fallback.arn}/*"]`},
		{[]string{"aws_iam_policy_document", "statement", "principals", "identifiers"}, `["cloudfront.amazonaws.com"]`},
		{[]string{"aws_iam_policy_document", "statement", "condition", "variable"}, `"aws:SourceArn"`},
		{[]string{"aws_iam_policy_document", "statement", "condition", "values"}, "[aws_cloudfront_distribution.keypost.arn]"},
	} {
		if got := at(tt.path...); got != tt.want {
			t.Errorf("%s is %s, want %s", strings.Join(tt.path, "."), got, tt.want)
		}
	}
	if statements := strings.Count(string(text), "  statement {"); statements != strings.Count(string(text), "aws_cloudfront_distribution.keypost.arn]") {
		t.Errorf("of %d statements some hold for other distributions, too", statements)
	}
}
