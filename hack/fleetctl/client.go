package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// client speaks to one server of the fleet.
type client struct {
	url   string
	token string
	http  *http.Client
}

func newClient(url, token string, ca []byte) *client {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != nil {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(ca)
	}
	// Without a proxy: everything is on 127.0.0.1.
	transport := &http.Transport{TLSClientConfig: config}
	return &client{url: url, token: token, http: &http.Client{Timeout: 5 * time.Second, Transport: transport}}
}

func (c *client) get(ctx context.Context, path string) (string, error) {
	return c.send(ctx, http.MethodGet, path, "")
}

// create sends an object; that it exists already is fine, as after a lost answer.
func (c *client) create(ctx context.Context, path, object string) error {
	_, err := c.send(ctx, http.MethodPost, path, object)
	return err
}

func (c *client) send(ctx context.Context, method, path, body string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode >= 300 && response.StatusCode != http.StatusConflict {
		return "", fmt.Errorf("%s: %s: %s", path, response.Status, tail(string(text), 3))
	}
	return string(text), nil
}

// permanent marks an error that waiting can't mend.
type permanent struct{ error }

// waitUntil calls check until it succeeds, fails for good, or the limit has passed.
func waitUntil(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check(timed)
		var final permanent
		if err == nil || errors.As(err, &final) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timed.Done():
			return fmt.Errorf("not within %s: %w", limit, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
