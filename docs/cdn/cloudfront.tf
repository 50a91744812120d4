# CloudFront in front of keypostd, with what keypost export wrote as a second origin. Written from documentation and read as HCL by a
# test (test/terraform); never applied. Needs the AWS provider 6.13 or newer, for response_completion_timeout.

terraform {
  required_providers {
    aws = { source = "hashicorp/aws", version = ">= 6.13" }
  }
}

variable "issuer_host" {
  description = "host of the issuer URLs: oidc.example.com"
  type        = string
}

variable "origin_host" {
  description = "the name under which CloudFront reaches keypostd: a hostAlias there, with a certificate that everybody trusts"
  type        = string
}

variable "origin_secret" {
  description = "a value of listen.shield.secretFiles"
  type        = string
  sensitive   = true
}

variable "certificate_arn" {
  description = "ACM certificate for issuer_host, in us-east-1"
  type        = string
}

variable "fallback_bucket" {
  description = "name of the private bucket into which keypost export is copied; this file takes its bucket policy over"
  type        = string
}

resource "aws_cloudfront_cache_policy" "keypost" {
  name        = "keypost"
  min_ttl     = 0
  default_ttl = 300   # max-age
  max_ttl     = 86700 # max-age + stale-if-error

  parameters_in_cache_key_and_forwarded_to_origin {
    enable_accept_encoding_brotli = false
    enable_accept_encoding_gzip   = false

    cookies_config {
      cookie_behavior = "none"
    }
    headers_config {
      header_behavior = "none"
    }
    query_strings_config {
      query_string_behavior = "none"
    }
  }
}

resource "aws_cloudfront_origin_access_control" "fallback" {
  name                              = "keypost-fallback"
  origin_access_control_origin_type = "s3"
  signing_behavior                  = "always"
  signing_protocol                  = "sigv4"
}

data "aws_s3_bucket" "fallback" {
  bucket = var.fallback_bucket
}

# CloudFront alone reads the bucket, and of CloudFront this distribution. Without s3:ListBucket a file that is not there is a 403 and not
# a 404, which CloudFront would hand out; a list of a bucket of public documents tells nobody anything.
data "aws_iam_policy_document" "fallback" {
  statement {
    actions   = ["s3:GetObject"]
    resources = ["${data.aws_s3_bucket.fallback.arn}/*"]

    principals {
      type        = "Service"
      identifiers = ["cloudfront.amazonaws.com"]
    }
    condition {
      test     = "StringEquals"
      variable = "aws:SourceArn"
      values   = [aws_cloudfront_distribution.keypost.arn]
    }
  }

  statement {
    actions   = ["s3:ListBucket"]
    resources = [data.aws_s3_bucket.fallback.arn]

    principals {
      type        = "Service"
      identifiers = ["cloudfront.amazonaws.com"]
    }
    condition {
      test     = "StringEquals"
      variable = "aws:SourceArn"
      values   = [aws_cloudfront_distribution.keypost.arn]
    }
  }
}

resource "aws_s3_bucket_policy" "fallback" {
  bucket = data.aws_s3_bucket.fallback.id
  policy = data.aws_iam_policy_document.fallback.json
}

resource "aws_cloudfront_distribution" "keypost" {
  enabled         = true
  is_ipv6_enabled = true
  http_version    = "http2"
  aliases         = [var.issuer_host]

  origin {
    origin_id                   = "keypostd"
    domain_name                 = var.origin_host
    connection_attempts         = 1
    connection_timeout          = 2
    response_completion_timeout = 4

    custom_header {
      name  = "X-Origin-Secret"
      value = var.origin_secret
    }

    custom_origin_config {
      http_port              = 80
      https_port             = 443
      origin_protocol_policy = "https-only"
      origin_ssl_protocols   = ["TLSv1.2"]
      origin_read_timeout    = 3
    }
  }

  # The bucket has HOST/PATH/keys.json, as keypost export writes it.
  origin {
    origin_id                = "fallback"
    domain_name              = data.aws_s3_bucket.fallback.bucket_regional_domain_name
    origin_path              = "/${var.issuer_host}"
    origin_access_control_id = aws_cloudfront_origin_access_control.fallback.id
    connection_attempts      = 1
    connection_timeout       = 1
  }

  origin_group {
    origin_id = "keypost"

    failover_criteria {
      status_codes = [500, 502, 503, 504]
    }
    member {
      origin_id = "keypostd"
    }
    member {
      origin_id = "fallback"
    }
  }

  default_cache_behavior {
    target_origin_id       = "keypost"
    cache_policy_id        = aws_cloudfront_cache_policy.keypost.id
    allowed_methods        = ["GET", "HEAD"]
    cached_methods         = ["GET", "HEAD"]
    viewer_protocol_policy = "https-only"
    compress               = false
  }

  custom_error_response {
    error_code            = 404
    error_caching_min_ttl = 60
  }

  dynamic "custom_error_response" {
    for_each = [500, 502, 503, 504]

    content {
      error_code            = custom_error_response.value
      error_caching_min_ttl = 0
    }
  }

  restrictions {
    geo_restriction {
      restriction_type = "none"
    }
  }

  viewer_certificate {
    acm_certificate_arn      = var.certificate_arn
    minimum_protocol_version = "TLSv1.2_2021"
    ssl_support_method       = "sni-only"
  }
}

# Only CloudFront reaches keypostd's port, and the machines from which keypost looks at the origin; the shield tells other people's
# distributions from yours.
data "aws_ec2_managed_prefix_list" "cloudfront" {
  name = "com.amazonaws.global.cloudfront.origin-facing"
}

variable "origin_security_group_id" {
  description = "security group of the machines that run keypostd"
  type        = string
}

resource "aws_vpc_security_group_ingress_rule" "cloudfront" {
  security_group_id = var.origin_security_group_id
  prefix_list_id    = data.aws_ec2_managed_prefix_list.cloudfront.id
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

variable "looking_from" {
  description = "addresses from which keypost verify and keypost watch look at the origin: 192.0.2.7/32"
  type        = set(string)
  default     = []
}

resource "aws_vpc_security_group_ingress_rule" "looking" {
  for_each          = var.looking_from
  security_group_id = var.origin_security_group_id
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

output "domain_name" {
  description = "what the issuer's host is an alias of"
  value       = aws_cloudfront_distribution.keypost.domain_name
}

output "hosted_zone_id" {
  description = "the zone of domain_name, for such an alias"
  value       = aws_cloudfront_distribution.keypost.hosted_zone_id
}
