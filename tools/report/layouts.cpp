#include "report/layouts.hpp"

#include <algorithm>
#include <cmath>

#include "base/text.hpp"
#include "estimate/number_text.hpp"
#include "report/page.hpp"

namespace prun {
namespace {

constexpr double width = 960, height = 320, left = 90, right = 40, bottom = 40, top = 12;

std::string at(double value) { return format("%.2f", value); }
std::string bytes_of(const TunedCandidate& one) { return size_text(one.planned.device_bytes); }

// So many times the best's time is drawn: what takes longer would press all others onto a line.
constexpr double most_times = 3;

// A layout must be this much quicker than a smaller one to be named beside it: both would have one time.
constexpr double least_gain = 0.995;

bool is_drawn(const TunedCandidate& one, const TuneResult& result) {
  return one.planned.step_seconds <= most_times * result.best.front().planned.step_seconds;
}

// Draws memory to the right from zero, and time upwards on a logarithmic axis, from the quickest on.
class Drawing {
 public:
  Drawing(Html& page, const std::vector<const TunedCandidate*>& layouts) : page_(page) {
    least_ = most_ = layouts.front()->planned.step_seconds;
    for (const TunedCandidate* one : layouts) {
      bytes_ = std::max(bytes_, static_cast<double>(one->planned.device_bytes));
      least_ = std::min(least_, one->planned.step_seconds);
      most_ = std::max(most_, one->planned.step_seconds);
    }
    most_ = std::max(most_, least_ * 1.05);
  }

  void axes() {
    const double wide = tick_distance(most_ - least_, 4);
    for (double time = std::ceil(least_ / wide) * wide; time <= most_; time += wide) {
      const std::string y = at(y_of(time));
      page_.element("line", "",
                    {{"class", "grid"}, {"x1", at(left)}, {"x2", at(width - right)}, {"y1", y}, {"y2", y}});
      page_.element("text", time_text(time), {{"class", "tick y"}, {"x", at(left - 6)}, {"y", y}});
    }
    const double size = std::exp2(std::floor(std::log2(std::max(bytes_, 4.0) / 2)));
    for (double bytes = 0; bytes <= bytes_; bytes += size)
      page_.element("text", size_text(bytes),
                    {{"class", "middle"}, {"x", at(x_of(bytes))}, {"y", at(height - 22)}});
    page_.element("text", "memory of the fullest rank's device",
                  {{"class", "middle"}, {"x", at((left + width) / 2)}, {"y", at(height - 6)}});
    page_.element("text", "time of a step, logarithmic", {{"x", at(left + 6)}, {"y", at(top + 10)}});
  }

  void frontier(const std::vector<const TunedCandidate*>& of) {
    std::string path;
    for (const TunedCandidate* one : of) {
      const std::string x = at(x_of(static_cast<double>(one->planned.device_bytes)));
      path += path.empty() ? "M" + x + " " : "H" + x + "V";
      path += at(y_of(one->planned.step_seconds));
    }
    page_.element("path", "", {{"class", "curve c0"}, {"d", path}});
  }

  void point(const TunedCandidate& one, const char* of, double radius) {
    page_.open("circle", {{"class", of},
                          {"cx", at(x_of(static_cast<double>(one.planned.device_bytes)))},
                          {"cy", at(y_of(one.planned.step_seconds))},
                          {"r", at(radius)}});
    page_.element("title", one.text + ": " + time_text(one.planned.step_seconds) + ", " + bytes_of(one))
        .close();
  }

 private:
  double x_of(double bytes) const { return left + bytes / std::max(bytes_, 1.0) * (width - left - right); }
  double y_of(double seconds) const {
    return height - bottom - std::log(seconds / least_) / std::log(most_ / least_) * (height - top - bottom);
  }

  Html& page_;
  double bytes_ = 0, least_ = 0, most_ = 0;
};

void draw(Html& page, const TuneResult& result, const std::vector<const TunedCandidate*>& frontier) {
  page.open("figure").open("svg", {{"viewBox", "0 0 " + at(width) + " " + at(height)},
                                   {"role", "img"},
                                   {"aria-labelledby", "layouts-title layouts-desc"}});
  page.element("title", "The time of a step against memory", {{"id", "layouts-title"}});
  page.element("desc", "The best: " + result.best.front().text + ".", {{"id", "layouts-desc"}});
  std::vector<const TunedCandidate*> drawn, line;
  for (const TunedCandidate& one : result.best)
    if (is_drawn(one, result)) drawn.push_back(&one);
  for (const TunedCandidate* one : frontier)
    if (is_drawn(*one, result)) line.push_back(one);
  Drawing drawing(page, drawn);
  drawing.axes();
  drawing.frontier(line);
  for (const TunedCandidate* one : drawn) drawing.point(*one, "f1", 3);
  for (const TunedCandidate* one : line) drawing.point(*one, "f0", 4);
  drawing.point(result.best.front(), "f3", 6);
  page.close().close();
}

}  // namespace

std::vector<const TunedCandidate*> frontier_of(const std::vector<TunedCandidate>& layouts) {
  std::vector<const TunedCandidate*> order;
  order.reserve(layouts.size());
  for (const TunedCandidate& one : layouts) order.push_back(&one);
  std::stable_sort(order.begin(), order.end(), [](const TunedCandidate* a, const TunedCandidate* b) {
    return std::pair(a->planned.device_bytes, a->planned.step_seconds) <
           std::pair(b->planned.device_bytes, b->planned.step_seconds);
  });
  std::vector<const TunedCandidate*> frontier;
  for (const TunedCandidate* one : order)
    if (frontier.empty() || one->planned.step_seconds < frontier.back()->planned.step_seconds *
                                                            (one == &layouts.front() ? 1 : least_gain))
      frontier.push_back(one);
  return frontier;
}

void add_layouts(Html& page, const TuneResult& result) {
  open_section(page, "layouts-section", "Layouts that were planned");
  const std::vector<const TunedCandidate*> frontier = frontier_of(result.best);
  const auto slow = std::count_if(result.best.begin(), result.best.end(),
                                  [&](const TunedCandidate& one) { return !is_drawn(one, result); });
  page.element(
      "p", detail::concat("The recipe leaves its layout open. prun considered ", result.looked_at,
                          " layouts and planned ", result.planned, ". The chart shows the ",
                          static_cast<std::int64_t>(result.best.size()) - slow, " distinct ones",
                          slow > 0 ? detail::concat(", without ", slow, " that take more than ", most_times,
                                                    " times as long as the best")
                                   : std::string(),
                          "; the large dot is the one chosen. No layout is faster than the line with "
                          "the same memory."));
  draw(page, result, frontier);
  std::vector<std::vector<std::string>> rows;
  rows.reserve(frontier.size());
  for (const TunedCandidate* one : frontier)
    rows.push_back({bytes_of(*one), time_text(one->planned.step_seconds),
                    rate_text(one->planned.tokens_per_second), one->text});
  page.open("div", {{"class", "plain"}});
  add_table(page, "those on the line", {"memory", "a step", "tokens/s", "layout"}, rows);
  page.close();
  for (const std::string& line : result.why) page.element("p", line, {{"class", "note"}});
  page.close();
}

}  // namespace prun
