package admin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	apiSession    = "/api/v1/session" // sign in and out, in a browser
	sessionLength = 12 * time.Hour
	maxBody       = 64 << 10 // maximum size of the body of a request
)

// sessions creates and checks cookies for browsers that have sent the token. A cookie consists of
// its expiry time and a MAC of this time. The key of the MAC is random and known only to this
// process. So the process stores no sessions, and a restart ends all sessions.
type sessions struct {
	key  []byte
	name string // of the cookie; differs by process, because all ports of a host share cookies
}

func newSessions() sessions {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	sum := sha256.Sum256(key)
	return sessions{key, "penstock_" + hex.EncodeToString(sum[:4])}
}

func (s sessions) value(expiry int64) string {
	mac := hmac.New(sha256.New, s.key)
	_, _ = mac.Write([]byte(strconv.FormatInt(expiry, 10))) // it never fails
	return strconv.FormatInt(expiry, 10) + "." + hex.EncodeToString(mac.Sum(nil))
}

// valid reports whether r has the cookie of a session that has not expired.
func (s sessions) valid(r *http.Request) bool {
	c, err := r.Cookie(s.name)
	if err != nil {
		return false
	}
	text, _, _ := strings.Cut(c.Value, ".")
	expiry, err := strconv.ParseInt(text, 10, 64)
	return err == nil && hmac.Equal([]byte(c.Value), []byte(s.value(expiry))) && time.Now().Unix() < expiry
}

func (s sessions) cookie(r *http.Request, value string, age time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: s.name, Value: value, Path: "/", MaxAge: int(age / time.Second), HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
		Secure:   r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	}
}

// sessionInfo is the response of GET /api/v1/session.
type sessionInfo struct {
	SignedIn bool `json:"signed_in"` // the client may read the pages that need a token
	Token    bool `json:"token"`     // a token is set; otherwise records are not shown
	// Parking lists the routes that park deliveries (store them and deliver them later). It is
	// empty if the client has no access to the pages that need a token.
	Parking []string `json:"parking,omitempty"`
}

func (s *Server) session(w http.ResponseWriter, r *http.Request) {
	info := sessionInfo{SignedIn: s.authorized(r), Token: s.o.Token != ""}
	if info.SignedIn {
		for _, route := range s.o.Deliveries() {
			info.Parking = append(info.Parking, route.Name)
		}
	}
	writeJSON(w, http.StatusOK, info)
}

func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Token string `json:"token"`
	}
	if !readJSON(w, r, &in) {
		return
	}
	if s.o.Token == "" || subtle.ConstantTimeCompare([]byte(in.Token), []byte(s.o.Token)) != 1 {
		reply(w, http.StatusUnauthorized, "this is not the token of admin.token\n")
		return
	}
	http.SetCookie(w, s.sessions.cookie(r, s.sessions.value(time.Now().Add(sessionLength).Unix()), sessionLength))
	writeJSON(w, http.StatusOK, sessionInfo{SignedIn: true, Token: true})
}

func (s *Server) signOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, s.sessions.cookie(r, "", -time.Second))
	writeJSON(w, http.StatusOK, sessionInfo{Token: s.o.Token != ""})
}

// readJSON decodes the body of a request into to. It accepts only the content type of JSON, because
// a form on another site cannot send this type. If the body is not valid, readJSON responds with an
// error and returns false.
func readJSON(w http.ResponseWriter, r *http.Request, to any) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(kind) != "application/json" {
		reply(w, http.StatusUnsupportedMediaType, "the body must be application/json\n")
		return false
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		reply(w, http.StatusBadRequest, "the body is not valid: "+err.Error()+"\n")
		return false
	}
	return true
}
