// Package terraform reads the Terraform files of docs/ as HCL: they are written as they should be, refer to nothing that they have
// not, and open the bucket to nobody else. Whether AWS takes them is not known here.
package terraform

import (
	"bytes"
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

// The module gets no variable that it does not have.
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
