#include "report/plan_page.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "estimate/number_text.hpp"
#include "inspect/plan_figures.hpp"
#include "inspect/report.hpp"
#include "report/page.hpp"
#include "runs/log.hpp"

namespace prun {
namespace {

constexpr double width = 960;
constexpr std::size_t most_rows = 24, most_bars = 2500, most_moments = 600, most_tensors = 12;
constexpr std::int64_t most_ranks = 16;

std::string bytes_of(std::int64_t bytes) { return size_text(bytes); }
std::string at(double value) { return format("%.2f", value); }
std::string percent(double share) { return format("%.1f %%", 100 * share); }

void add_key(Html& page, std::initializer_list<std::pair<const char*, const char*>> classes) {
  page.open("p");
  for (const auto& [of, said] : classes) {
    page.open("span", {{"class", "key"}}).open("svg", {{"viewBox", "0 0 10 10"}, {"aria-hidden", "true"}});
    page.element("rect", "", {{"width", "10"}, {"height", "10"}, {"class", of}}).close().text(said).close();
  }
  page.close();
}

void open_drawing(Html& page, const std::string& id, double height, const std::string& title,
                  const std::string& description) {
  page.open("figure").open("svg", {{"viewBox", "0 0 " + at(width) + " " + at(height)},
                                   {"role", "img"},
                                   {"aria-labelledby", id + "-title " + id + "-desc"}});
  page.element("title", title, {{"id", id + "-title"}}).element("desc", description, {{"id", id + "-desc"}});
}

// ------------------------------------------------------------------- memory

// Returns the purposes of all these ranks, in their order.
std::vector<std::string> purposes_of(const Assembly& assembly, const std::vector<std::int64_t>& ranks) {
  std::vector<std::string> names;
  for (const std::int64_t rank : ranks)
    for (const PurposeBytes& purpose : bytes_by_purpose(assembly.program(), assembly.plan_of(rank)))
      if (std::find(names.begin(), names.end(), purpose.name) == names.end()) names.push_back(purpose.name);
  return names;
}

void add_regions(Html& page, const Assembly& assembly) {
  std::vector<std::string> heads = {"bytes by purpose"};
  std::vector<std::int64_t> ranks;
  if (assembly.pipeline())
    for (const int rank : assembly.mesh().group(0, assembly.pipeline()->axis)) ranks.push_back(rank);
  else
    ranks.push_back(0);
  ranks.resize(std::min<std::size_t>(ranks.size(), most_ranks));
  for (const std::int64_t rank : ranks) heads.push_back("rank " + std::to_string(rank));
  std::vector<std::vector<std::string>> rows;
  const auto add_row = [&](const std::string& name, const auto& bytes) {
    std::vector<std::string> row = {name};
    std::int64_t all = 0;
    for (const std::int64_t rank : ranks) {
      all += bytes(rank);
      row.push_back(bytes_of(bytes(rank)));
    }
    if (all > 0) rows.push_back(row);
  };
  for (const std::string& name : purposes_of(assembly, ranks))
    add_row(name, [&](std::int64_t rank) {
      for (const PurposeBytes& purpose : bytes_by_purpose(assembly.program(), assembly.plan_of(rank)))
        if (purpose.name == name) return purpose.all();
      return std::int64_t{0};
    });
  add_row("the plan, in memory",
          [&](std::int64_t rank) { return assembly.plan_of(rank).layout.bytes_in_memory(); });
  add_row("the plan, on drives", [&](std::int64_t rank) {
    const Layout& layout = assembly.plan_of(rank).layout;
    return layout.memory.total() - layout.bytes_in_memory();
  });
  add_row("the process besides", [&](std::int64_t rank) { return assembly.process_bytes_of(rank); });
  add_table(page, assembly.pipeline() ? "of a rank of each stage" : "of a rank", heads, rows);
}

// Draws a stack from below: memory that is always used, what is kept for backward, scratch of the call.
void draw_use(Html& page, const MemoryUse& use) {
  constexpr double height = 200, left = 70, bottom = 22, top = 10;
  std::int64_t most = 1;
  for (std::size_t i = 0; i < use.moments.size(); ++i) most = std::max(most, use.at(i));
  const double wide = (width - left) / static_cast<double>(std::max<std::size_t>(1, use.moments.size()));
  const auto x = [&](std::size_t moment) { return left + wide * static_cast<double>(moment); };
  const auto y = [&](std::int64_t bytes) {
    return height - bottom - static_cast<double>(bytes) / static_cast<double>(most) * (height - top - bottom);
  };
  const auto area = [&](const char* of, const auto& upper) {
    std::string path = "M" + at(left) + " " + at(height - bottom);
    for (std::size_t i = 0; i < use.moments.size(); ++i) path += "V" + at(y(upper(i))) + "H" + at(x(i + 1));
    page.element("path", "", {{"class", of}, {"d", path + "V" + at(height - bottom) + "Z"}});
  };
  const std::string peak = use.moments[use.peak].call;
  open_drawing(page, "memory", height, "Memory in use over the calls of a step",
               "Most is in use, " + bytes_of(use.at(use.peak)) + ", in the call " + peak + ".");
  area("f2", [&](std::size_t i) { return use.at(i); });
  area("f1", [&](std::size_t i) { return use.always + use.moments[i].saved; });
  area("f0", [&](std::size_t) { return use.always; });
  const std::string middle = at((x(use.peak) + x(use.peak + 1)) / 2);
  page.element(
      "line", "",
      {{"class", "peak"}, {"x1", middle}, {"x2", middle}, {"y1", at(top)}, {"y2", at(height - bottom)}});
  std::vector<std::int64_t> ticks = {0, most};
  if (std::min(y(0) - y(use.always), y(use.always) - y(most)) > 12) ticks.push_back(use.always);
  for (const std::int64_t bytes : ticks)
    page.element("text", bytes_of(bytes), {{"class", "tick y"}, {"x", at(left - 6)}, {"y", at(y(bytes))}});
  page.element("text", "calls of a step that compute, in their order",
               {{"class", "middle"}, {"x", at((left + width) / 2)}, {"y", at(height - 6)}});
  page.close().close();
}

// Draws long steps by the most of each few calls.
MemoryUse thinned(MemoryUse use) {
  const std::size_t every = use.moments.size() / most_moments + 1;
  if (every == 1) return use;
  MemoryUse thin = use;
  thin.moments.clear();
  for (std::size_t begin = 0; begin < use.moments.size(); begin += every) {
    std::size_t most = begin;
    for (std::size_t i = begin; i < std::min(begin + every, use.moments.size()); ++i)
      if (use.at(i) > use.at(most)) most = i;
    if (begin <= use.peak && use.peak < begin + every) most = use.peak, thin.peak = thin.moments.size();
    thin.moments.push_back(use.moments[most]);
  }
  return thin;
}

void add_memory(Html& page, const Assembly& assembly) {
  open_section(page, "memory-section", "Memory");
  std::int64_t rank = 0;  // the one that needs most
  for (std::int64_t other = 0; other < std::min<std::int64_t>(assembly.mesh().world(), 4096); ++other)
    if (assembly.plan_of(other).layout.memory.total() > assembly.plan_of(rank).layout.memory.total())
      rank = other;
  const MemoryUse use = thinned(memory_use(assembly, rank));
  if (!use.moments.empty()) {
    const MemoryMoment& peak = use.moments[use.peak];
    page.element("p", detail::concat("Rank ", rank, " has most in use in the call ", peak.call, ": ",
                                     bytes_of(use.at(use.peak)), ", of which ", bytes_of(use.always),
                                     " are there always, ", bytes_of(peak.saved),
                                     " are kept of microbatches until their backward, and ",
                                     bytes_of(peak.scratch), " are scratch of that call. The plan reserves ",
                                     bytes_of(assembly.plan_of(rank).layout.memory.total()),
                                     ": every place is there for as much as it ever holds."));
    draw_use(page, use);
    add_key(page, {{"f0", "always there"}, {"f1", "kept for backward"}, {"f2", "scratch of the call"}});
    std::vector<std::vector<std::string>> rows;
    for (const PeakTensor& tensor : use.tensors)
      if (rows.size() < most_tensors) rows.push_back({tensor.name, tensor.region, bytes_of(tensor.bytes)});
    add_table(page, "the largest tensors that this call works with; scratch is used by several in turn",
              {"tensor", "where", "bytes"}, rows);
  }
  add_regions(page, assembly);
  page.close();
}

// ------------------------------------------------------------------- timeline

const char* class_of(TimelineBar::Kind kind) {
  switch (kind) {
    case TimelineBar::Kind::forward: return "forward";
    case TimelineBar::Kind::backward: return "backward";
    case TimelineBar::Kind::weight: return "weight";
    case TimelineBar::Kind::exchange: return "exchange";
    case TimelineBar::Kind::update: break;
  }
  return "update";
}

void draw_timeline(Html& page, const Timeline& timeline) {
  constexpr double left = 150, right = 56, row = 20, top = 4;
  const double height = top + row * static_cast<double>(timeline.rows.size()) + 20;
  const double scale = (width - left - right) / std::max(timeline.end, 1e-12);
  open_drawing(page, "timeline", height, "What runs when in a step", timeline.said);
  for (std::size_t r = 0; r < timeline.rows.size(); ++r) {
    const TimelineRow& of = timeline.rows[r];
    const double y = top + row * static_cast<double>(r);
    page.element("text", printable(of.label, 22),
                 {{"class", "label end"}, {"x", at(left - 8)}, {"y", at(y + 13)}});
    page.element("rect", "",
                 {{"class", "idle"},
                  {"x", at(left)},
                  {"y", at(y)},
                  {"width", at(width - left - right)},
                  {"height", at(row - 4)}});
    for (const TimelineBar& bar : of.bars) {
      page.open("rect", {{"class", class_of(bar.kind)},
                         {"x", at(left + bar.begin * scale)},
                         {"y", at(y)},
                         {"width", at(std::max(0.3, (bar.end - bar.begin) * scale - 0.4))},
                         {"height", at(row - 4)}});
      page.element("title", bar.name + format(", %.3f to %.3f ", bar.begin, bar.end) + timeline.unit).close();
    }
    page.element("text", percent(of.idle), {{"x", at(width - right + 6)}, {"y", at(y + 13)}});
  }
  page.element("text", "0", {{"x", at(left)}, {"y", at(height - 4)}});
  page.element("text",
               timeline.unit == "ms" ? time_text(timeline.end * 1e-3)
                                     : number_text(timeline.end) + " " + timeline.unit,
               {{"class", "end"}, {"x", at(width - right)}, {"y", at(height - 4)}});
  page.element("text", "idle", {{"x", at(width - right + 6)}, {"y", at(height - 4)}});
  page.close().close();
}

void add_timeline(Html& page, const Assembly& assembly, const Forecast& forecast) {
  const Timeline timeline = timeline_of(assembly, forecast, most_rows, most_bars);
  open_section(page, "timeline-section", "A step in time");
  if (timeline.rows.empty()) {
    page.element("p", "Nothing to draw: " + forecast.missing + ".", {{"class", "note"}}).close();
    return;
  }
  page.element("p", timeline.said + ".", {{"class", "note"}});
  draw_timeline(page, timeline);
  add_key(page, {{"forward", "forward"},
                 {"backward", "backward, of the input where split"},
                 {"weight", "backward of the weights"},
                 {"update", "update and the rest"},
                 {"exchange", "exchange"},
                 {"idle", "idle"}});
  page.close();
}

// ------------------------------------------------------------------- traffic

void add_matrix(Html& page, const TrafficMatrix& matrix) {
  double most = 1;
  for (const auto& row : matrix.bytes) most = std::max(most, *std::max_element(row.begin(), row.end()));
  page.open("div", {{"class", "wide"}}).open("table", {{"class", "matrix"}});
  page.element("caption", detail::concat("bytes from rank (row) to rank (column) in a step",
                                         matrix.ranks > static_cast<std::int64_t>(matrix.bytes.size())
                                             ? detail::concat(", the first ", matrix.bytes.size(), " of ",
                                                              matrix.ranks, " ranks")
                                             : std::string()));
  page.open("thead").open("tr").element("th", "from \\ to", {{"scope", "col"}});
  for (std::size_t to = 0; to < matrix.bytes.size(); ++to)
    page.element("th", std::to_string(to), {{"scope", "col"}});
  page.close().close().open("tbody");
  for (std::size_t from = 0; from < matrix.bytes.size(); ++from) {
    page.open("tr").element("th", std::to_string(from), {{"scope", "row"}});
    for (const double bytes : matrix.bytes[from]) {
      page.open("td");
      if (bytes > 0) {
        page.open("svg",
                  {{"viewBox", "0 0 10 10"}, {"width", "10"}, {"height", "10"}, {"aria-hidden", "true"}});
        page.element("rect", "",
                     {{"width", "10"}, {"height", "10"}, {"opacity", at(0.15 + 0.85 * bytes / most)}});
        page.close().text(" " + size_text(bytes));
      } else {
        page.text("-");
      }
      page.close();
    }
    page.close();
  }
  page.close().close().close();
}

void add_traffic(Html& page, const Assembly& assembly, PluginHost& plugins) {
  if (assembly.mesh().world() == 1) return;
  const TrafficMatrix matrix = traffic_matrix(assembly, plugins, most_ranks);
  open_section(page, "traffic-section", "Traffic between ranks");
  add_matrix(page, matrix);
  page.element("p",
               "What goes to a group is shared out evenly among its members here; which links carry it is "
               "up to the comm plugin.",
               {{"class", "note"}});
  std::vector<std::vector<std::string>> rows;
  for (const Link& link : matrix.links) {
    if (link.rank != 0 && !(assembly.pipeline() && link.bytes > 0)) continue;
    std::string members;
    for (std::size_t i = 0; i < link.members.size() && i < 8; ++i)
      members += (i ? ", " : "") + std::to_string(link.members[i]);
    if (link.members.size() > 8) members += ", ..";
    rows.push_back(
        {std::to_string(link.rank), link.queue, link.axis, link.comm, members, size_text(link.bytes)});
  }
  add_table(page, "links of ranks: what each sends in a step",
            {"rank", "queue", "axis", "by", "ranks", "bytes"}, rows);
  page.close();
}

// ------------------------------------------------------------------- predicted and measured

struct Compared {
  std::string what;
  double predicted = -1, measured = -1;  // negative: not known
  std::string (*text)(double) = nullptr;
};

double peak_bytes(const LoggedFinish& finish) {
  std::int64_t most = 0;
  for (const RankMemory& rank : finish.memory) most = std::max(most, rank.peak_bytes);
  return static_cast<double>(most);
}

// Returns what the run had planned, perhaps elsewhere, on other cores; else what is planned here.
double most_planned(const Assembly& assembly, const RunLog* log) {
  std::int64_t most = 0;
  if (log && log->finish && !log->finish->memory.empty()) {
    for (const RankMemory& rank : log->finish->memory) most = std::max(most, planned_bytes(rank));
    return static_cast<double>(most);
  }
  for (std::int64_t rank = 0; rank < std::min<std::int64_t>(assembly.mesh().world(), 4096); ++rank)
    most = std::max(most, assembly.plan_of(rank).layout.bytes_in_memory() + assembly.process_bytes_of(rank));
  return static_cast<double>(most);
}

std::vector<Compared> compared(const Assembly& assembly, const Forecast& forecast, const RunLog* log) {
  Compared step{"a step", -1, -1, [](double value) { return time_text(value); }};
  Compared rate{"tokens a second", -1, -1, rate_text};
  Compared exposed{"exposed communication of a step", -1, -1, [](double value) { return percent(value); }};
  Compared memory{"host memory of the largest rank: its plan and its process", -1, -1,
                  [](double value) { return size_text(value); }};
  if (assembly.device_info().host_memory) memory.predicted = most_planned(assembly, log);
  const auto tokens = static_cast<double>(assembly.batch().tokens());
  if (forecast.prediction) {
    const Simulation& simulation = forecast.prediction->simulation;
    step.predicted = simulation.step_seconds;
    rate.predicted = tokens / simulation.step_seconds;
    exposed.predicted = forecast.exposed.communication / simulation.step_seconds;
  }
  if (log && !log->steps.empty()) {
    step.measured = step_seconds_at(*log, 0.5);
    if (step.measured > 0) rate.measured = tokens / step.measured;
    const TimeAccount account = account_of(*log);
    const double busy = account.shares[0].seconds + account.shares[1].seconds;
    if (account.measured > 0 && busy > 0) exposed.measured = account.shares[1].seconds / busy;
    if (log->finish && peak_bytes(*log->finish) > 0) memory.measured = peak_bytes(*log->finish);
  }
  return {step, rate, exposed, memory};
}

void add_prediction(Html& page, const Assembly& assembly, const Forecast& forecast, const RunLog* log) {
  std::vector<std::vector<std::string>> rows;
  for (const Compared& of : compared(assembly, forecast, log)) {
    const auto text = [&](double value) { return value < 0 ? std::string("not known") : of.text(value); };
    std::vector<std::string> row = {of.what, text(of.predicted)};
    if (log) {
      row.push_back(text(of.measured));
      row.push_back(of.predicted > 0 && of.measured >= 0
                        ? format("%+.1f %%", 100 * (of.measured / of.predicted - 1))
                        : "");
    }
    rows.push_back(row);
  }
  open_section(page, "prediction-section", log ? "Predicted and measured" : "Predicted");
  if (!forecast.prediction)
    page.element("p", "No predicted times: " + forecast.missing + ".", {{"class", "note"}});
  add_table(page, log ? "times are medians of the run" : "",
            log ? std::vector<std::string>{"", "predicted", "measured", "off by"}
                : std::vector<std::string>{"", "predicted"},
            rows);
  if (forecast.prediction)
    for (const std::string& note : forecast.prediction->notes) page.element("p", note, {{"class", "note"}});
  page.close();
}

}  // namespace

void add_plan(Html& page, const Assembly& assembly, PluginHost& plugins, const Forecast& forecast,
              const RunLog* log) {
  add_prediction(page, assembly, forecast, log);
  add_timeline(page, assembly, forecast);
  add_memory(page, assembly);
  add_traffic(page, assembly, plugins);
  open_section(page, "plan-section", "The plan");
  page.element("pre", plan_text(assembly, forecast)).close();
}

}  // namespace prun
