// Writes the frame of a page: one file that needs no other, allows nothing but its own style and script to
// act, and can be read where scripts do not run.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"

namespace prun {

// ------------------------------------------------------------------- html
// Writes HTML, element by element. Text and attributes stay text and attributes, whatever they hold: a log, a
// recipe or a name cannot become markup.

// Writes letters that HTML would take for markup as references, and replaces those that a reader could not
// see, or that would reverse the order of letters.
std::string escaped(std::string_view text);

// Returns a text of JSON as the content of a script element: no '<' is left that could end it.
std::string escaped_json(std::string json);

class Html {
 public:
  using Attributes = std::initializer_list<std::pair<std::string_view, std::string>>;

  Html& open(std::string_view tag, Attributes attributes = {});
  Html& close();
  Html& text(std::string_view text);
  // Adds an element with a text in it, or an empty one.
  Html& element(std::string_view tag, std::string_view text, Attributes attributes = {});
  Html& empty(std::string_view tag, Attributes attributes = {});
  // Adds parts that were built in the same way.
  Html& add(const Html& part);
  // Adds markup that is no user's text: files that the build embeds in the program, and escaped_json().
  Html& trusted(std::string_view markup);

  std::string take();

 private:
  void begin(std::string_view tag, Attributes attributes);

  std::string text_;
  std::vector<std::string> open_;
};

// ------------------------------------------------------------------- chart
// Draws curves that need no script, with their numbers for the script that lets a reader look closer.

struct CurvePoint {
  double step = 0, time = 0, value = 0;  // `time` counts seconds since the run began
};

struct Curve {
  std::string run;
  std::vector<CurvePoint> points;                       // are few enough to draw
  double first = 0, last = 0, least = 0, greatest = 0;  // those of all points that are finite
  double least_at = 0, greatest_at = 0;                 // are steps
  std::int64_t count = 0;                               // counts all points
  std::int64_t not_finite = 0;                          // counts those that are not finite
};

struct Chart {
  std::string id, title, unit;  // `id` is a word of letters
  std::vector<Curve> curves;    // has one for each run
};

Curve curve_of(std::string run, const std::vector<CurvePoint>& points, std::size_t buckets);

// Adds a figure: heading, drawing, and a table of what the drawing shows.
void add_chart(Html& page, const Chart& chart);

// Returns the JSON that the script reads: [{"id", "title", "unit", "curves": [{"run", "points": [[step, time,
// value], ..]}]}]
std::string charts_json(const std::vector<Chart>& charts);

// Returns 1, 2 or 5 times a power of ten, so that about `count` of them fit into a span.
double tick_distance(double span, int count);

// Writes six significant digits, as everywhere on a page.
std::string number_text(double value);

// ------------------------------------------------------------------- page

// Every page begins with this.
inline constexpr const char* page_mark = "<!DOCTYPE html>\n<!-- prun report -->\n";

// `title` stands above the body; `facts` in small letters below it.
std::string whole_page(const std::string& title, const std::string& facts, const std::vector<Chart>& charts,
                       const Html& body);

// Opens a section with a heading that has a place in the list of contents.
void open_section(Html& page, const std::string& id, const std::string& title);

// Is a row of a table of two columns, one row a fact.
struct Fact {
  std::string name, value;
};
void add_facts(Html& page, const std::string& caption, const std::vector<Fact>& facts);

// Adds rows of texts under heads; the first column names its row.
void add_table(Html& page, const std::string& caption, const std::vector<std::string>& heads,
               const std::vector<std::vector<std::string>>& rows);

// ------------------------------------------------------------------- decimate
// Reduces a curve of millions of points to one that looks the same with a few thousand.

// Returns which of `count` points stay, in order: of each of `buckets` equal runs of them the first, the
// last, the least and the greatest, and one that is not finite where there is any. All stay where they are
// few.
std::vector<std::size_t> points_to_show(std::size_t count, std::size_t buckets,
                                        const std::function<double(std::size_t)>& value);

}  // namespace prun
