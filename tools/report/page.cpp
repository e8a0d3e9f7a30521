#include "report/page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/sha256.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"
#include "report/assets.hpp"

namespace prun {

// ------------------------------------------------------------------- decimate

std::vector<std::size_t> points_to_show(std::size_t count, std::size_t buckets,
                                        const std::function<double(std::size_t)>& value) {
  constexpr std::size_t most_of_bucket = 5;
  std::vector<std::size_t> shown;
  if (count <= buckets * most_of_bucket) {
    for (std::size_t i = 0; i < count; ++i) shown.push_back(i);
    return shown;
  }
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const std::size_t begin = bucket * count / buckets, end = (bucket + 1) * count / buckets;
    std::size_t least = count, greatest = count, odd = count;
    for (std::size_t i = begin; i < end; ++i) {
      const double here = value(i);
      if (!std::isfinite(here)) {
        if (odd == count) odd = i;
        continue;
      }
      if (least == count || here < value(least)) least = i;
      if (greatest == count || here > value(greatest)) greatest = i;
    }
    std::vector<std::size_t> of_bucket = {begin, end - 1, least, greatest, odd};
    std::erase(of_bucket, count);
    std::sort(of_bucket.begin(), of_bucket.end());
    of_bucket.erase(std::unique(of_bucket.begin(), of_bucket.end()), of_bucket.end());
    shown.insert(shown.end(), of_bucket.begin(), of_bucket.end());
  }
  return shown;
}

namespace {

// ------------------------------------------------------------------- html

constexpr std::string_view replacement = "\xEF\xBF\xBD";

// Says whether a letter shows nothing, or turns others round.
bool is_deceptive(char32_t letter) {
  return (is_control(letter) && letter != '\n' && letter != '\t') || letter == 0x200B;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint letter = decode_utf8(text);
    switch (letter.value) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default:
        out += letter.valid && !is_deceptive(letter.value) ? text.substr(0, letter.bytes) : replacement;
    }
    text.remove_prefix(letter.bytes);
  }
  return out;
}

std::string escaped_json(std::string json) {
  for (std::size_t at = 0; (at = json.find('<', at)) != std::string::npos;) json.replace(at, 1, "\\u003c");
  return json;
}

void Html::begin(std::string_view tag, Attributes attributes) {
  text_.append("<").append(tag);
  for (const auto& [name, value] : attributes)
    text_.append(" ").append(name).append("=\"").append(escaped(value)).append("\"");
  text_ += '>';
}

Html& Html::open(std::string_view tag, Attributes attributes) {
  begin(tag, attributes);
  open_.emplace_back(tag);
  return *this;
}

Html& Html::close() {
  PRUN_CHECK(!open_.empty(), "an element is closed that was not opened");
  text_.append("</").append(open_.back()).append(">");
  open_.pop_back();
  return *this;
}

Html& Html::text(std::string_view text) {
  text_ += escaped(text);
  return *this;
}

Html& Html::element(std::string_view tag, std::string_view content, Attributes attributes) {
  return open(tag, attributes).text(content).close();
}

Html& Html::empty(std::string_view tag, Attributes attributes) {
  begin(tag, attributes);
  return *this;
}

Html& Html::add(const Html& part) {
  PRUN_CHECK(part.open_.empty(), "a part of a page with an open element ", part.open_.back());
  text_ += part.text_;
  return *this;
}

Html& Html::trusted(std::string_view markup) {
  text_ += markup;
  return *this;
}

std::string Html::take() {
  PRUN_CHECK(open_.empty(), "a page with an open element ", open_.back());
  return std::move(text_);
}

namespace {

// ------------------------------------------------------------------- chart

// These are sizes of the drawing, in its own units; the script draws with the same.
constexpr double width = 720, height = 220, left = 62, right = 24, top = 10, bottom = 26;

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();

  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Makes room around a line that is flat, or around nothing at all.
  void settle() {
    if (!(low <= high)) low = 0, high = 1;
    if (low == high) {
      const double room = low == 0 ? 1 : std::abs(low) * 0.1;
      low -= room, high += room;
    }
  }
  double share(double value) const { return (value - low) / (high - low); }
};

double x_of(const Range& range, double step) { return left + range.share(step) * (width - left - right); }
double y_of(const Range& range, double value) {
  return height - bottom - range.share(value) * (height - top - bottom);
}

std::string coordinate(double value) { return format("%.1f", value); }

// Writes a number so that it has room to the left of the axis.
std::string tick_text(double value) {
  for (const auto& [unit, name] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
    if (std::abs(value) >= (unit > 1e3 ? unit : 10 * unit)) return number_text(value / unit) + name;
  return number_text(value);
}

void add_axes(Html& page, const Range& steps, const Range& values) {
  const double step = tick_distance(values.high - values.low, 4);
  for (double at = std::ceil(values.low / step) * step; at <= values.high; at += step) {
    const std::string y = coordinate(y_of(values, at));
    page.element("line", "",
                 {{"class", "grid"},
                  {"x1", coordinate(left)},
                  {"x2", coordinate(width - right)},
                  {"y1", y},
                  {"y2", y}});
    page.element("text", tick_text(std::abs(at) < step * 1e-9 ? 0 : at),
                 {{"x", coordinate(left - 6)}, {"y", y}, {"class", "tick y"}});
  }
  const double wide = std::max(1.0, tick_distance(steps.high - steps.low, 7));
  const double first = std::ceil(steps.low / wide) * wide;
  for (double at = first; at <= steps.high; at += wide)
    page.element("text", (at == first ? "step " : "") + number_text(at),
                 {{"x", coordinate(x_of(steps, at))}, {"y", coordinate(height - 8)}, {"class", "tick x"}});
}

// Lines end where a value is not finite, and go on behind it. A point between two such values is a dash.
std::string path_of(const Curve& curve, const Range& steps, const Range& values) {
  std::string path;
  int length = 0;  // counts those of the line at hand
  const auto end_line = [&] {
    if (length == 1) path += "m-3 0h6";
    length = 0;
  };
  for (const CurvePoint& point : curve.points) {
    if (!std::isfinite(point.value)) {
      end_line();
      continue;
    }
    path += (length++ > 0 ? "L" : "M") + coordinate(x_of(steps, point.step)) + " " +
            coordinate(y_of(values, point.value));
  }
  end_line();
  return path;
}

// Marks the points of a curve that has few: of two, or of one among gaps, a line shows nothing.
void add_points(Html& page, const Curve& curve, std::size_t number, const Range& steps, const Range& values) {
  constexpr std::size_t few = 12;
  if (curve.points.size() > few) return;
  for (const CurvePoint& point : curve.points)
    if (std::isfinite(point.value))
      page.element("circle", "",
                   {{"class", "f" + std::to_string(number)},
                    {"cx", coordinate(x_of(steps, point.step))},
                    {"cy", coordinate(y_of(values, point.value))},
                    {"r", "3"}});
}

std::string summary(const Curve& curve) {
  if (curve.count == curve.not_finite) return "no value";
  return "from " + number_text(curve.first) + " to " + number_text(curve.last) + ", least " +
         number_text(curve.least) + " at step " + number_text(curve.least_at) + ", greatest " +
         number_text(curve.greatest) + " at step " + number_text(curve.greatest_at);
}

void add_table(Html& page, const Chart& chart) {
  page.open("table", {{"class", "numbers"}}).open("thead").open("tr");
  for (const char* head : {"run", "first", "last", "least", "greatest", "points"})
    page.element("th", head, {{"scope", "col"}});
  page.close().close().open("tbody");
  for (const Curve& curve : chart.curves) {
    const bool any = curve.count > curve.not_finite;
    const auto cell = [&](double value, double at) {
      page.element("td",
                   any ? number_text(value) + (at >= 0 ? " (step " + number_text(at) + ")" : "") : "none");
    };
    page.open("tr").element("th", curve.run, {{"scope", "row"}});
    cell(curve.first, -1);
    cell(curve.last, -1);
    cell(curve.least, curve.least_at);
    cell(curve.greatest, curve.greatest_at);
    page.element("td", std::to_string(curve.count) +
                           (curve.not_finite ? ", " + std::to_string(curve.not_finite) + " not finite" : ""));
    page.close();
  }
  page.close().close();
}

}  // namespace

double tick_distance(double span, int count) {
  const double raw = span / count, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == std::floor(value) && std::abs(value) < 1e9) return format("%.0f", value);
  return format("%.6g", value);
}

Curve curve_of(std::string run, const std::vector<CurvePoint>& points, std::size_t buckets) {
  Curve curve;
  curve.run = std::move(run);
  curve.count = static_cast<std::int64_t>(points.size());
  const auto value = [&](std::size_t i) { return points[i].value; };
  for (const std::size_t i : points_to_show(points.size(), buckets, value)) curve.points.push_back(points[i]);
  bool any = false;
  for (const CurvePoint& point : points) {
    if (!std::isfinite(point.value)) {
      ++curve.not_finite;
      continue;
    }
    if (!any) curve.first = point.value;
    if (!any || point.value < curve.least) curve.least = point.value, curve.least_at = point.step;
    if (!any || point.value > curve.greatest) curve.greatest = point.value, curve.greatest_at = point.step;
    curve.last = point.value;
    any = true;
  }
  return curve;
}

void add_chart(Html& page, const Chart& chart) {
  Range steps, values;
  std::string description;
  for (const Curve& curve : chart.curves) {
    for (const CurvePoint& point : curve.points) {
      steps.take(point.step);
      values.take(point.value);
    }
    description += (description.empty() ? "" : "; ") + curve.run + ": " + summary(curve);
  }
  steps.settle();
  values.settle();
  const std::string title = chart.title + (chart.unit.empty() ? "" : ", " + chart.unit);
  page.open("figure", {{"class", "chart"}, {"id", "chart-" + chart.id}});
  page.element("figcaption", title);
  page.open("svg", {{"viewBox", format("0 0 %.0f %.0f", width, height)},
                    {"role", "img"},
                    {"aria-labelledby", chart.id + "-title " + chart.id + "-desc"}});
  page.element("title", title + " by step", {{"id", chart.id + "-title"}});
  page.element("desc", description, {{"id", chart.id + "-desc"}});
  page.open("g", {{"class", "axes"}});
  add_axes(page, steps, values);
  page.close().open("g", {{"class", "curves"}});
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    page.element("path", "",
                 {{"class", "curve c" + std::to_string(i)}, {"d", path_of(chart.curves[i], steps, values)}});
    add_points(page, chart.curves[i], i, steps, values);
  }
  page.close().close();
  page.open("details").element("summary", "as numbers");
  add_table(page, chart);
  page.close().close();
}

std::string charts_json(const std::vector<Chart>& charts) {
  JsonWriter json(NonFinite::write_null);
  json.begin_array();
  for (const Chart& chart : charts) {
    json.begin_object().member("id", chart.id).member("title", chart.title).member("unit", chart.unit);
    json.name("curves").begin_array();
    for (const Curve& curve : chart.curves) {
      json.begin_object().member("run", curve.run).name("points").begin_array();
      for (const CurvePoint& point : curve.points)
        json.begin_array()
            .value(point.step)
            .value(static_cast<float>(point.time))
            .value(point.value)
            .end_array();
      json.end_array().end_object();
    }
    json.end_array().end_object();
  }
  return json.end_array().take();
}

namespace {

// ------------------------------------------------------------------- page

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
