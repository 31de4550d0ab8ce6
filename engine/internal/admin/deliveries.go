package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

const (
	apiDeliveries = "/api/v1/deliveries" // parked deliveries

	maxKey          = 256 // maximum length of a requested key, in bytes
	defaultPage     = 100
	maxPage         = 1000
	headerNextAfter = "Penstock-Next-After"
)

// DeliveryRoute is a route with a sink that parks deliveries: it stores them and delivers them
// later.
type DeliveryRoute struct {
	Name  string // pipeline/route
	Store stream.DeliveryStore
}

// routedDelivery is a delivery with its route.
type routedDelivery struct {
	Route string `json:"route"`
	stream.Delivery
}

// problem is the body of a response that reports an error.
type problem struct {
	Error string `json:"error"`
}

func (s *Server) deliveryPages(pages *http.ServeMux) {
	pages.HandleFunc("GET "+apiDeliveries, s.listDeliveries)
	pages.HandleFunc("GET "+apiDeliveries+"/{key}", s.delivery(stream.DeliveryStore.Delivery))
	pages.HandleFunc("POST "+apiDeliveries+"/{key}/retry", s.delivery(stream.DeliveryStore.Retry))
	pages.HandleFunc("POST "+apiDeliveries+"/{key}/cancel", s.delivery(stream.DeliveryStore.Cancel))
}

// deliveryRoutes returns the route given by ?route=, or all routes if the parameter is missing.
func (s *Server) deliveryRoutes(r *http.Request) []DeliveryRoute {
	name := r.URL.Query().Get("route")
	return slices.DeleteFunc(s.o.Deliveries(), func(route DeliveryRoute) bool {
		return name != "" && route.Name != name
	})
}

// deliveryAction is an action on the parked delivery with a given key, such as a retry. It is a
// method of a store of deliveries.
type deliveryAction func(stream.DeliveryStore, context.Context, string) (stream.Delivery, error)

// delivery returns a handler for requests about one delivery, which is identified by its key. If
// several routes have a delivery with this key, the handler uses the first of these routes.
func (s *Server) delivery(ask deliveryAction) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := r.PathValue("key")
		if len(key) > maxKey {
			text := "a key has at most " + strconv.Itoa(maxKey) + " bytes"
			writeJSON(w, http.StatusBadRequest, problem{text})
			return
		}
		for _, route := range s.deliveryRoutes(r) {
			d, err := ask(route.Store, r.Context(), key)
			if errors.Is(err, stream.ErrNoDelivery) {
				continue
			}
			if err != nil {
				writeJSON(w, statusOf(err), problem{stream.MaskURLs(err.Error())})
				return
			}
			writeJSON(w, http.StatusOK, routedDelivery{route.Name, d})
			return
		}
		writeJSON(w, http.StatusNotFound, problem{stream.ErrNoDelivery.Error()})
	}
}

// ownDelivery handles requests with the token of a receiver, which can access only its own
// deliveries. Other requests are passed to next.
func (s *Server) ownDelivery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !given || s.o.Owner == nil || s.authorized(r) {
			next.ServeHTTP(w, r)
			return
		}
		owner, ok := s.o.Owner(token)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		s.delivery(func(
			store stream.DeliveryStore, ctx context.Context, key string,
		) (stream.Delivery, error) {
			return store.DeliveryOf(ctx, key, owner)
		})(w, r)
	})
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, stream.ErrNoDelivery):
		return http.StatusNotFound
	case errors.Is(err, stream.ErrDeliveryEnded):
		return http.StatusConflict
	case errors.Is(err, stream.ErrBadFilter):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// listDeliveries writes a page of deliveries. If there may be a next page, a header of the response
// contains the value of the parameter `after` for the request of that page.
func (s *Server) listDeliveries(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	f := stream.DeliveryFilter{Host: query.Get("host"), State: query.Get("state")}
	f.Limit = defaultPage
	var err error
	if text := query.Get("limit"); text != "" {
		f.Limit, err = strconv.Atoi(text)
	}
	if text := query.Get("after"); text != "" && err == nil {
		f.After, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil || f.Limit < 1 || f.Limit > maxPage {
		text := "limit is a number from 1 to 1000, after the id of a delivery"
		writeJSON(w, http.StatusBadRequest, problem{text})
		return
	}
	routes := s.deliveryRoutes(r)
	if len(routes) > 1 {
		names := ""
		for _, route := range routes {
			names += " " + route.Name
		}
		text := "several routes park deliveries; add ?route= with one of" + names
		writeJSON(w, http.StatusBadRequest, problem{text})
		return
	}
	page := []routedDelivery{}
	for _, route := range routes {
		found, err := route.Store.List(r.Context(), f)
		if err != nil {
			writeJSON(w, statusOf(err), problem{stream.MaskURLs(err.Error())})
			return
		}
		for _, d := range found {
			page = append(page, routedDelivery{route.Name, d})
		}
		if len(found) == f.Limit {
			w.Header().Set(headerNextAfter, strconv.FormatInt(found[len(found)-1].ID, 10))
		}
	}
	writeJSON(w, http.StatusOK, page)
}
