#include "report/page.hpp"

#include <array>

#include "base/sha256.hpp"
#include "report/assets.hpp"

namespace prun {
namespace {

std::string base64_of_hex(const std::string& hex) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<unsigned>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t j) { return j < bytes.size() ? bytes[j] : 0; };
    const unsigned word = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    for (std::size_t digit = 0; digit < 4; ++digit)
      out += i + digit <= bytes.size() ? letters[word >> (18 - 6 * digit) & 63u] : '=';
  }
  return out;
}

std::string source_of(std::string_view embedded) {
  return "'sha256-" + base64_of_hex(sha256_hex(embedded)) + "'";
}

// Returns the browser's rule by which nothing else of a page can act: were a text ever taken for markup, it
// could neither run nor load anything.
std::string policy() {
  return "default-src 'none'; style-src " + source_of(page_style) + "; script-src " + source_of(page_script) +
         "; base-uri 'none'; form-action 'none'";
}

}  // namespace

std::string whole_page(const std::string& title, const std::string& facts, const std::vector<Chart>& charts,
                       const Html& body) {
  Html page;
  page.trusted(page_mark).open("html", {{"lang", "en"}}).open("head");
  page.empty("meta", {{"charset", "utf-8"}});
  page.empty("meta", {{"http-equiv", "Content-Security-Policy"}, {"content", policy()}});
  page.empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  page.empty("meta", {{"name", "color-scheme"}, {"content", "light dark"}});
  page.element("title", title).open("style").trusted(page_style).close().close();
  page.open("body").open("header").element("h1", title).element("p", facts, {{"class", "facts"}});
  page.open("form", {{"id", "controls"}, {"hidden", ""}}).close().close();
  page.open("main").add(body).close();
  page.open("script", {{"type", "application/json"}, {"id", "charts"}});
  page.trusted(escaped_json(charts_json(charts))).close();
  page.open("script").trusted(page_script).close();
  return page.close().close().take() + "\n";
}

void open_section(Html& page, const std::string& id, const std::string& title) {
  page.open("section", {{"id", id}, {"aria-labelledby", id + "-heading"}});
  page.element("h2", title, {{"id", id + "-heading"}});
}

void add_facts(Html& page, const std::string& caption, const std::vector<Fact>& facts) {
  page.open("table", {{"class", "facts"}}).element("caption", caption).open("tbody");
  for (const Fact& fact : facts)
    page.open("tr").element("th", fact.name, {{"scope", "row"}}).element("td", fact.value).close();
  page.close().close();
}

void add_table(Html& page, const std::string& caption, const std::vector<std::string>& heads,
               const std::vector<std::vector<std::string>>& rows) {
  page.open("div", {{"class", "wide"}}).open("table").element("caption", caption).open("thead").open("tr");
  for (const std::string& head : heads) page.element("th", head, {{"scope", "col"}});
  page.close().close().open("tbody");
  for (const std::vector<std::string>& row : rows) {
    page.open("tr");
    for (std::size_t i = 0; i < row.size(); ++i)
      i == 0 ? page.element("th", row[i], {{"scope", "row"}}) : page.element("td", row[i]);
    page.close();
  }
  page.close().close().close();
}

}  // namespace prun
