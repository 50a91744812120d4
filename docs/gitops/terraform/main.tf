# A first issuer on AWS by Terraform: DNS, certificates, the chart in a cluster, and CloudFront in front (../../cdn/cloudfront.tf, a
# module here). Written from documentation; a test reads it as HCL (test/terraform) and the chart takes its values (test/chart). Never
# applied. The state holds the shield's secret: keep it where state may hold secrets.

terraform {
  required_providers {
    aws        = { source = "hashicorp/aws", version = ">= 6.13" }
    helm       = { source = "hashicorp/helm", version = ">= 3.0" }
    kubernetes = { source = "hashicorp/kubernetes", version = ">= 2.30" }
    random     = { source = "hashicorp/random", version = ">= 3.6" }
  }
}

# CloudFront takes certificates from there only.
provider "aws" {
  alias  = "us_east_1"
  region = "us-east-1"
}

variable "zone" {
  description = "the hosted zone of both hosts: example.com"
  type        = string
}

variable "issuer_host" {
  description = "host of the issuer URLs: oidc.example.com"
  type        = string
}

variable "origin_host" {
  description = "the name under which CloudFront reaches keypostd: origin.example.com"
  type        = string
}

variable "chart_version" {
  description = "version of the chart, with which keypostd comes"
  type        = string
}

variable "fallback_bucket" {
  description = "name of the private bucket into which keypost export is copied; its bucket policy is taken over"
  type        = string
}

variable "origin_security_group_id" {
  description = "security group of keypostd's load balancer"
  type        = string
}

data "aws_route53_zone" "zone" {
  name = var.zone
}

resource "aws_acm_certificate" "issuer" {
  provider          = aws.us_east_1
  domain_name       = var.issuer_host
  validation_method = "DNS"

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_route53_record" "validation" {
  for_each = { for o in aws_acm_certificate.issuer.domain_validation_options : o.domain_name => o }

  zone_id = data.aws_route53_zone.zone.zone_id
  name    = each.value.resource_record_name
  type    = each.value.resource_record_type
  records = [each.value.resource_record_value]
  ttl     = 300
}

resource "aws_acm_certificate_validation" "issuer" {
  provider                = aws.us_east_1
  certificate_arn         = aws_acm_certificate.issuer.arn
  validation_record_fqdns = [for r in aws_route53_record.validation : r.fqdn]
}

# What only CloudFront knows. To change it: put the new value beside the old one, apply CloudFront, then take the old one away.
resource "random_password" "shield" {
  length  = 40
  special = false
}

resource "kubernetes_secret" "shield" {
  metadata {
    name      = "keypost-shield"
    namespace = "oidc"
  }
  data = {
    current = random_password.shield.result
  }
}

# cert-manager is in the cluster, with a ClusterIssuer letsencrypt that validates by DNS: the origin's port is open to CloudFront only.
resource "helm_release" "keypost" {
  name       = "keypost"
  namespace  = "oidc"
  repository = "oci://ghcr.io/keypost/charts"
  chart      = "keypost"
  version    = var.chart_version
  wait       = false # it is ready with its first key set

  values = [
    file("${path.module}/values.yaml"),
    yamlencode({
      issuerURLs  = ["https://${var.issuer_host}/{name}"]
      hostAliases = { (var.origin_host) = var.issuer_host }
    }),
  ]

  depends_on = [kubernetes_secret.shield]
}

data "kubernetes_service" "keypost" {
  metadata {
    name      = helm_release.keypost.name
    namespace = helm_release.keypost.namespace
  }
}

resource "aws_route53_record" "origin" {
  zone_id = data.aws_route53_zone.zone.zone_id
  name    = var.origin_host
  type    = "CNAME"
  records = [data.kubernetes_service.keypost.status[0].load_balancer[0].ingress[0].hostname]
  ttl     = 60
}

module "cdn" {
  source = "../../cdn"

  issuer_host              = var.issuer_host
  origin_host              = var.origin_host
  origin_secret            = random_password.shield.result
  certificate_arn          = aws_acm_certificate_validation.issuer.certificate_arn
  fallback_bucket          = var.fallback_bucket
  origin_security_group_id = var.origin_security_group_id
}

resource "aws_route53_record" "issuer" {
  for_each = toset(["A", "AAAA"])

  zone_id = data.aws_route53_zone.zone.zone_id
  name    = var.issuer_host
  type    = each.value

  alias {
    name                   = module.cdn.domain_name
    zone_id                = module.cdn.hosted_zone_id
    evaluate_target_health = false
  }
}
