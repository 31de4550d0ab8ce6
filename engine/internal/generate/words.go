//penstock:pure

package generate

// page is a page of the shop. Pages at the beginning of the list are requested more often.
type page struct {
	method, path string
	item         bool   // the number of an item follows
	query        string // sent in half of the requests, with a number after it
	from         string // referrer in half of the requests
	service      string
	status       int
	size         int64 // minimum size of the response
	micros       int64 // minimum response time
	cached       bool  // a browser may have it in its cache
}

// shop is the base URL of the simulated site.
const shop = "https://shop.example"

var pages = []page{
	{method: "GET", path: "/", service: "shop", status: 200, size: 18_204, micros: 2_310},
	{method: "GET", path: "/static/site.css", from: shop + "/", service: "static", status: 200,
		size: 9_871, micros: 90, cached: true},
	{method: "GET", path: "/static/app.js", from: shop + "/", service: "static", status: 200,
		size: 141_322, micros: 120, cached: true},
	{method: "GET", path: "/items/", item: true, query: "?ref=list&pos=", from: shop + "/search",
		service: "catalog", status: 200,
		size: 23_940, micros: 6_150},
	{method: "GET", path: "/images/items/", item: true, from: shop + "/items", service: "static",
		status: 200, size: 48_113,
		micros: 240, cached: true},
	{method: "GET", path: "/search", query: "?q=caf%C3%A9+cr%C3%A8me&page=", from: shop + "/",
		service: "search", status: 200,
		size: 15_002, micros: 31_400},
	{method: "POST", path: "/cart/items/", item: true, from: shop + "/items", service: "cart",
		status: 201, size: 612, micros: 8_020},
	{method: "GET", path: "/api/v1/stock/", item: true, service: "stock", status: 200, size: 188,
		micros: 1_470},
	{method: "GET", path: "/favicon.ico", service: "static", status: 200, size: 1_150, micros: 40,
		cached: true},
	{method: "POST", path: "/checkout", from: shop + "/cart", service: "checkout", status: 303,
		size: 94, micros: 84_000},
	{method: "GET", path: "/login", service: "accounts", status: 200, size: 5_404, micros: 1_900},
	{method: "POST", path: "/login", from: shop + "/login", service: "accounts", status: 302,
		size: 61, micros: 52_000},
	{method: "HEAD", path: "/healthz", service: "shop", status: 200, size: 2, micros: 30},
	{method: "GET", path: "/api/v1/orders", query: "?limit=50&after=", service: "checkout",
		status: 200, size: 31_877, micros: 12_600},
	{method: "DELETE", path: "/cart/items/", item: true, from: shop + "/cart", service: "cart",
		status: 204, size: 1, micros: 7_700},
	{method: "GET", path: "/robots.txt", service: "static", status: 200, size: 204, micros: 35,
		cached: true},
	{method: "GET", path: "/wp-login.php", service: "shop", status: 404, size: 512, micros: 310},
	{method: "GET", path: "/.env", service: "shop", status: 403, size: 146, micros: 120},
	{method: "PUT", path: "/api/v1/items/", item: true, service: "catalog", status: 200,
		size: 1_702, micros: 19_300},
	{method: "GET", path: "/downloads/catalogue-2026.pdf", from: shop + "/", service: "static",
		status: 206, size: 4_194_304,
		micros: 410_000},
}

var referrers = []string{
	"-", "-", shop + "/", "https://search.example/?q=espresso+machine",
	"https://news.example/2026/01/gifts",
	shop + "/items", "-", "https://social.example/@coffee/112233",
}

// agents are the user agents. Log lines and JSON contain them with the same escapes for quotes.
var agents = []string{
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Chrome/143.0.0.0 Safari/537.36",
	"Mozilla/5.0 (iPhone; CPU iPhone OS 19_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like " +
		"Gecko) Version/19.1 Mobile/15E148",
	"Mozilla/5.0 (X11; Linux x86_64; rv:146.0) Gecko/20100101 Firefox/146.0",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) " +
		"Version/19.0 Safari/605.1.15",
	"Mozilla/5.0 (Linux; Android 16) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/143.0.0.0 " +
		"Mobile Safari/537.36",
	"Mozilla/5.0 (compatible; ExampleBot/2.1; +https://bot.example/about)",
	"curl/8.17.0",
	"Go-http-client/2.0",
	`Mozilla/4.0 (compatible; \"quoted\" agent; set by hand)`,
	"-",
}

var users = []string{"ana", "bjoern", "chidi", "d.okafor", "mei.lin", "zoe@example.org"}

var languages = []string{`["de","en;q=0.8"]`, `["en-GB"]`, `[]`, `["ja","en;q=0.5","*;q=0.1"]`,
	`["fr-CA","fr"]`}

var notes = []string{
	"", "leave at the door", `\"gift\", please wrap\nand no bill`, "Grüße aus Köln", "急ぎ",
	`tab\there \\ and \u00e9`, "🎁",
}
