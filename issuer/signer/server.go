package signer

import (
	"context"
	"errors"
	"net"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/externaljwt/apis/v1"
	"k8s.io/externaljwt/apis/v1alpha1"
)

const (
	// refreshHint is how often a kube-apiserver reads the list again. It is the max-age of the JWKS that the API server
	// publishes itself, and how long it accepts tokens of a revoked key.
	refreshHint = 10 * time.Second
	// signTime bounds one signature. A kube-apiserver sets no limit, and each start of a pod would wait.
	signTime = 10 * time.Second
	// maxMessage bounds a call, in bytes. A token travels in a header, so its claims are a few kilobytes.
	maxMessage = 64 << 10
	// maxHeaders bounds the headers of a call, in bytes. gRPC's own bound is 16 MB, which it keeps until the message arrives.
	maxHeaders = 8 << 10
	// maxStreams bounds the calls under way of one connection, and maxConnections the connections. A kube-apiserver makes one.
	// With the sizes of a call they bound memory and open files, without which a revocation could not be read.
	maxStreams, maxConnections = 250, 16
	// idle is how long a connection without a call stays open, else a few that do nothing would keep a new kube-apiserver out. A
	// kube-apiserver reads the list every [refreshHint].
	idle = time.Minute
)

// Serve answers callers on a socket that [Listen] has made, until ctx is done. Calls under way may end.
func (s *Signer) Serve(ctx context.Context, l net.Listener, callers Callers) error {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idle}))
	v1.RegisterExternalJWTSignerServer(server, v1Server{s: s})
	v1alpha1.RegisterExternalJWTSignerServer(server, v1alpha1Server{s: s})
	stop := context.AfterFunc(ctx, func() {
		ended := time.AfterFunc(signTime, server.Stop)
		defer ended.Stop()
		server.GracefulStop()
	})
	defer stop()
	return server.Serve(netutil.LimitListener(peers{l, callers, s.metrics.refused}, maxConnections))
}

// What callers are told. Anyone who asks for a token reads it word for word, so that it says nothing of keys or services.
var (
	errClaims = status.Error(codes.InvalidArgument, "keypost-signer: the claims are not those of a token")
	errNoKey  = status.Error(codes.FailedPrecondition, "keypost-signer: no key may sign now; its log says why")
	errFailed = status.Error(codes.Unavailable, "keypost-signer: the token could not be signed; its log says why")
	errNoSet  = status.Error(codes.Unavailable, "keypost-signer: no key set has been read yet; its log says why")
)

// sign returns the first and the third segment of a token.
func (s *Signer) sign(ctx context.Context, claims string) (header, signature string, err error) {
	exp, err := expiry(claims)
	if err != nil {
		return "", "", s.failed(failedClaims, err, errClaims)
	}
	ctx, cancel := context.WithTimeout(ctx, signTime)
	defer cancel()
	for {
		is := s.signing(ctx)
		if is == nil {
			return "", "", s.failed(failedNoKey, errors.New(s.state.Load().noKey), errNoKey)
		}
		began := time.Now()
		signature, err = is.sign(ctx, claims)
		switch {
		case errors.Is(err, errWrongSignature):
			return "", "", s.failed(failedSignature, err, errFailed)
		case err != nil:
			return "", "", s.failed(failedKey, err, errFailed)
		case !s.state.Load().lists(is.id):
			continue // it was revoked while its service took its time: its replacement signs
		}
		s.metrics.took.Observe(time.Since(began).Seconds())
		s.metrics.signatures.WithLabelValues(string(is.id)).Inc()
		s.tokens.add(is.id, exp)
		return is.header, signature, nil
	}
}

// signing returns the key that signs. Where none may, it waits for the next look at the private keys: the file of a replacement may have
// been copied just before its key set arrived.
func (s *Signer) signing(ctx context.Context) *signing {
	for until := time.Now().Add(poll + poll/2); ; {
		is := s.state.Load().signs
		if is != nil || time.Now().After(until) {
			return is
		}
		select {
		case <-time.After(poll / 20):
		case <-ctx.Done():
			return nil
		}
	}
}

// failed counts and logs a failure, and returns what the caller is told.
func (s *Signer) failed(reason string, err, told error) error {
	s.metrics.failures.WithLabelValues(reason).Inc()
	s.perCall.Warn("a token was not signed", zap.String("reason", reason), zap.Error(err))
	return told
}

type v1Server struct {
	v1.UnimplementedExternalJWTSignerServer
	s *Signer
}

func (v v1Server) Sign(ctx context.Context, r *v1.SignJWTRequest) (*v1.SignJWTResponse, error) {
	header, signature, err := v.s.sign(ctx, r.Claims)
	if err != nil {
		return nil, err
	}
	return &v1.SignJWTResponse{Header: header, Signature: signature}, nil
}

func (v v1Server) FetchKeys(context.Context, *v1.FetchKeysRequest) (*v1.FetchKeysResponse, error) {
	is := v.s.state.Load()
	if len(is.listed) == 0 {
		return nil, errNoSet
	}
	return &v1.FetchKeysResponse{Keys: is.listed, DataTimestamp: timestamppb.New(is.changed), RefreshHintSeconds: int64(refreshHint.Seconds())}, nil
}

func (v v1Server) Metadata(context.Context, *v1.MetadataRequest) (*v1.MetadataResponse, error) {
	is := v.s.state.Load()
	if len(is.listed) == 0 {
		return nil, errNoSet
	}
	return &v1.MetadataResponse{MaxTokenExpirationSeconds: int64(is.lifetime.Seconds())}, nil
}

// v1alpha1Server is for Kubernetes 1.32 and 1.33. Its messages are those of v1 under another name.
type v1alpha1Server struct {
	v1alpha1.UnimplementedExternalJWTSignerServer
	s *Signer
}

func (v v1alpha1Server) Sign(ctx context.Context, r *v1alpha1.SignJWTRequest) (*v1alpha1.SignJWTResponse, error) {
	header, signature, err := v.s.sign(ctx, r.Claims)
	if err != nil {
		return nil, err
	}
	return &v1alpha1.SignJWTResponse{Header: header, Signature: signature}, nil
}

func (v v1alpha1Server) FetchKeys(ctx context.Context, _ *v1alpha1.FetchKeysRequest) (*v1alpha1.FetchKeysResponse, error) {
	r, err := v1Server{s: v.s}.FetchKeys(ctx, nil)
	if err != nil {
		return nil, err
	}
	old := &v1alpha1.FetchKeysResponse{DataTimestamp: r.DataTimestamp, RefreshHintSeconds: r.RefreshHintSeconds}
	for _, k := range r.Keys {
		old.Keys = append(old.Keys, &v1alpha1.Key{KeyId: k.KeyId, Key: k.Key})
	}
	return old, nil
}

func (v v1alpha1Server) Metadata(ctx context.Context, _ *v1alpha1.MetadataRequest) (*v1alpha1.MetadataResponse, error) {
	r, err := v1Server{s: v.s}.Metadata(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &v1alpha1.MetadataResponse{MaxTokenExpirationSeconds: r.MaxTokenExpirationSeconds}, nil
}
