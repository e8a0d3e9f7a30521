#include "report/run_page.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "estimate/number_text.hpp"
#include "prun/plugin.hpp"
#include "report/page.hpp"
#include "report/plan_page.hpp"
#include "runs/diff.hpp"
#include "runs/log.hpp"
#include "runs/run_list.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- looked run
// Reads a run as its page needs it.

inline constexpr std::size_t longest_name = 60;

struct Looked {
  std::filesystem::path folder;
  std::string name;
  RunLog log;
  RunStatus status;
};

// Throws bad_input where the folder holds no log of a run.
Looked look_at(const std::filesystem::path& run) {
  const std::filesystem::path file = log_of(run), folder = file.parent_path();
  Looked looked{folder, "", read_log(file), {}};
  if (looked.log.parts.empty())
    throw_error(ErrorCode::bad_input, file.string(),
                " holds no record of a run's start; it is no log of prun's");
  looked.status = status_of(folder, looked.log);
  looked.name = printable(looked.log.start()->name, longest_name);
  return looked;
}

// Returns a name for each run: several of one name are distinguished by their folders.
std::vector<std::string> names_of(const std::vector<Looked>& runs) {
  std::vector<std::string> names;
  for (const Looked& run : runs) {
    const bool same = std::count_if(runs.begin(), runs.end(),
                                    [&](const Looked& other) { return other.name == run.name; }) > 1;
    names.push_back(same ? printable(run.folder.string(), longest_name) : run.name);
  }
  return names;
}

// ------------------------------------------------------------------- run charts
// Makes the charts of runs, over each other: what each step logs, what ops have counted, and evaluations.

constexpr std::size_t buckets = 400;  // for a curve; several runs share them

struct CurveKind {
  const char *id, *title, *unit;
  double (*value)(const LoggedStep& step);
  bool (*known)(const LoggedStep& step);
};

bool always(const LoggedStep&) { return true; }

constexpr CurveKind curve_kinds[] = {
    {"loss", "Loss", "", [](const LoggedStep& step) { return step.loss; }, always},
    {"norm", "Gradient norm", "", [](const LoggedStep& step) { return step.grad_norm; }, always},
    {"rate", "Learning rate", "", [](const LoggedStep& step) { return step.lr; }, always},
    {"scale", "Loss scale, log2", "", [](const LoggedStep& step) { return std::log2(step.loss_scale); },
     [](const LoggedStep& step) { return step.loss_scale > 0; }},
    {"tokens", "Tokens a second", "", [](const LoggedStep& step) { return step.tokens_per_second; },
     [](const LoggedStep& step) { return step.tokens_per_second > 0; }},
    {"mfu", "Model FLOPs utilization", "%", [](const LoggedStep& step) { return 100 * step.mfu; },
     [](const LoggedStep& step) { return step.mfu > 0; }},
    {"exposed", "Exposed communication", "% of a step",
     [](const LoggedStep& step) { return 100 * step.exposed_seconds / step.seconds; },
     [](const LoggedStep& step) { return step.exposed_seconds >= 0 && step.seconds > 0; }},
    {"energy", "Energy a token", "mJ", [](const LoggedStep& step) { return 1e3 * step.joules_per_token; },
     [](const LoggedStep& step) { return step.joules_per_token > 0; }},
    {"power", "Power of the first rank's device", "W", [](const LoggedStep& step) { return step.watts; },
     [](const LoggedStep& step) { return step.watts > 0; }},
    {"clock", "Clock of the first rank's device", "MHz",
     [](const LoggedStep& step) { return step.clock_mhz; },
     [](const LoggedStep& step) { return step.clock_mhz > 0; }},
};

Curve curve_of(const Looked& run, const CurveKind& kind, const std::string& name, std::size_t share) {
  std::vector<CurvePoint> points;
  for (const LoggedStep& step : run.log.steps)
    if (kind.known(step))
      points.push_back({static_cast<double>(step.step), step.time - run.log.first_time(), kind.value(step)});
  return curve_of(name, points, share);
}

Curve evaluations_of(const Looked& run, const std::string& name, std::size_t share) {
  std::vector<CurvePoint> points;
  for (const LoggedEvaluation& of : run.log.evaluations)
    points.push_back({static_cast<double>(of.step), of.time - run.log.first_time(), of.loss});
  return curve_of(name, points, share);
}

// Returns a curve for each kind of loss, named after the run.
template <class Record, class Losses>
std::vector<Curve> losses_of(const Looked& run, const std::vector<Record>& records, Losses losses,
                             const std::string& name, std::size_t share) {
  std::map<std::string, std::vector<CurvePoint>> points;
  for (const Record& of : records)
    for (const auto& [what, loss] : of.*losses)
      points[what].push_back({static_cast<double>(of.step), of.time - run.log.first_time(), loss});
  std::vector<Curve> curves;
  curves.reserve(points.size());
  for (const auto& [what, of_it] : points)
    curves.push_back(curve_of(name + ", " + printable(what, longest_name), of_it, share));
  return curves;
}

// Returns the chart that shows a tally. Of those that do not add up, what is extreme matters: one chart shows
// the most extreme of all of a segment that end alike, "block ... flushed.share".
std::string chart_of(const std::string& tally) {
  const std::size_t first = tally.find('.'), last = tally.rfind('.');
  const std::size_t before = first < last ? tally.rfind('.', last - 1) : first;
  if (together_of(tally) == Together::sum || before <= first) return tally;
  return tally.substr(0, first) + " ... " + tally.substr(before + 1);
}

// Of what ops have counted, the places by chart, in any step of the runs.
std::map<std::string, std::set<std::string>> tallies_of(const std::vector<Looked>& runs) {
  std::map<std::string, std::set<std::string>> places;
  for (const Looked& run : runs)
    for (const LoggedStep& step : run.log.steps)
      for (const LoggedTally& tally : step.tallies) places[chart_of(tally.name)].insert(tally.place);
  return places;
}

Curve tally_curve_of(const Looked& run, const std::string& chart, const std::string& place,
                     const std::string& name, std::size_t share) {
  std::vector<CurvePoint> points;
  for (const LoggedStep& step : run.log.steps) {
    std::optional<double> value;
    for (const LoggedTally& one : step.tallies)
      if (one.place == place && chart_of(one.name) == chart)
        value = !value                                     ? one.value
                : together_of(one.name) == Together::least ? std::min(*value, one.value)
                                                           : std::max(*value, one.value);
    if (value) points.push_back({static_cast<double>(step.step), step.time - run.log.first_time(), *value});
  }
  return curve_of(name, points, share);
}

// Returns what the numbers of a chart of tallies are.
const char* unit_of(const std::string& chart, const std::set<std::string>& places) {
  if (places.contains("most")) return "the largest of a layer, in means";
  if (chart == "clipped.share") return "of the steps so far";
  switch (together_of(chart)) {
    case Together::largest: return "the largest of all layers";
    case Together::least: return "the least of all layers";
    default: return "over all layers";
  }
}

// A chart's id is a word of letters.
std::vector<Chart> tally_charts_of(const std::vector<Looked>& runs, std::size_t share) {
  const std::vector<std::string> names = names_of(runs);
  std::vector<Chart> charts;
  for (const auto& [tally, places] : tallies_of(runs)) {
    Chart chart{"tally" + std::string(charts.size(), 'x'),
                printable(tally, longest_name),
                unit_of(tally, places),
                {}};
    for (std::size_t i = 0; i < runs.size(); ++i)
      for (const std::string& place : places)
        chart.curves.push_back(tally_curve_of(
            runs[i], tally, place,
            places.size() > 1 ? names[i] + ", " + printable(place, longest_name) : names[i], share));
    charts.push_back(std::move(chart));
  }
  return charts;
}

// Returns the charts that have a number of some run.
std::vector<Chart> charts_of(const std::vector<Looked>& runs) {
  const std::vector<std::string> names = names_of(runs);
  const std::size_t share = std::max<std::size_t>(buckets / runs.size(), 50);
  std::vector<Chart> charts;
  const auto add = [&](Chart chart) {
    if (std::any_of(chart.curves.begin(), chart.curves.end(),
                    [](const Curve& curve) { return curve.count > 0; }))
      charts.push_back(std::move(chart));
  };
  for (const CurveKind& kind : curve_kinds) {
    Chart chart{kind.id, kind.title, kind.unit, {}};
    for (std::size_t i = 0; i < runs.size(); ++i)
      chart.curves.push_back(curve_of(runs[i], kind, names[i], share));
    add(std::move(chart));
  }
  Chart parts{"parts", "Loss by set and role", "", {}};
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (Curve& curve : losses_of(runs[i], runs[i].log.steps, &LoggedStep::losses, names[i], share))
      parts.curves.push_back(std::move(curve));
  add(std::move(parts));
  for (Chart& chart : tally_charts_of(runs, share)) add(std::move(chart));
  Chart evaluation{"evaluation", "Loss on validation data", "", {}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    evaluation.curves.push_back(evaluations_of(runs[i], names[i], share));
    for (Curve& curve : losses_of(runs[i], runs[i].log.evaluations, &LoggedEvaluation::more, names[i], share))
      evaluation.curves.push_back(std::move(curve));
  }
  add(std::move(evaluation));
  return charts;
}

// ------------------------------------------------------------------- run page

namespace fs = std::filesystem;

constexpr std::size_t most_events = 200;
constexpr std::int64_t most_failures = 64 << 10;

std::string clock_text(double seconds) {
  return seconds > 0 && seconds < 1e11 ? utc_text(static_cast<std::time_t>(seconds)) : "?";
}

// ------------------------------------------------------------------- sections

// Returns the share of steps whose gradient norm was over optimizer.clip, where the run clips.
std::string clipped_text(const LoggedStep& last) {
  for (const LoggedTally& tally : last.tallies)
    if (tally.name == "clipped.share") return format("%.0f %%", 100 * tally.value);
  return "";
}

void add_summary(Html& page, const std::vector<Looked>& runs) {
  const std::vector<std::string> names = names_of(runs);
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunLog& log = runs[i].log;
    std::vector<std::string> row = {names[i], runs[i].status.state};
    if (log.steps.empty()) {
      row.insert(row.end(), {"0 of " + std::to_string(log.steps_to_do), "", "", "", "", ""});
    } else {
      const LoggedStep& last = log.steps.back();
      const double median = step_seconds_at(log, 0.5);
      row.insert(
          row.end(),
          {std::to_string(last.step) + " of " + std::to_string(log.steps_to_do), number_text(last.loss),
           number_text(last.grad_norm), clipped_text(last), time_text(median),
           median > 0 ? rate_text(value_at(log, 0.5, &LoggedStep::tokens_per_second)) : std::string()});
    }
    row.push_back(time_text(log.last_time() - log.first_time()));
    rows.push_back(row);
  }
  open_section(page, "summary-section", "Summary");
  add_table(page, "times and rates are medians of the steps",
            {"run", "state", "step", "loss", "gradient norm", "norm over clip", "a step", "tokens a second",
             "took"},
            rows);
  page.close();
}

// Lists the settings in which runs differ, each with its value in each run.
void add_differences(Html& page, const std::vector<Looked>& runs) {
  std::map<std::string, std::vector<std::string>> values;
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const RecipeLine& line : recipe_lines_of(runs[i].folder)) {
      std::vector<std::string>& of_runs = values[line.path()];
      of_runs.resize(runs.size());
      of_runs[i] = line.value;
    }
  std::vector<std::vector<std::string>> rows;
  for (auto& [key, of_runs] : values) {
    if (std::adjacent_find(of_runs.begin(), of_runs.end(), std::not_equal_to<>()) == of_runs.end()) continue;
    rows.push_back({key});
    rows.back().insert(rows.back().end(), of_runs.begin(), of_runs.end());
  }
  std::vector<std::string> heads = names_of(runs);
  heads.insert(heads.begin(), "setting");
  open_section(page, "differences-section", "What differs");
  if (rows.empty())
    page.element("p", "No setting differs.", {{"class", "note"}});
  else
    add_table(page, "settings that differ", heads, rows);
  page.close();
}

void add_curves(Html& page, const std::vector<Chart>& charts, const std::vector<Looked>& runs) {
  open_section(page, "curves-section", "Curves");
  if (charts.empty()) page.element("p", "No step has ended yet.", {{"class", "note"}});
  if (runs.size() > 1) {
    const std::vector<std::string> names = names_of(runs);
    page.open("p");
    for (std::size_t i = 0; i < names.size(); ++i) {
      page.open("span", {{"class", "key"}}).open("svg", {{"viewBox", "0 0 10 10"}, {"aria-hidden", "true"}});
      page.element("rect", "", {{"width", "10"}, {"height", "10"}, {"class", "f" + std::to_string(i)}});
      page.close().text(names[i]).close();
    }
    page.close();
  }
  page.open("div", {{"class", "charts"}});
  for (const Chart& chart : charts) add_chart(page, chart);
  page.close().close();
}

void add_time(Html& page, const RunLog& log) {
  const TimeAccount account = account_of(log);
  open_section(page, "time-section", "Where the time went");
  if (account.wall > 0) {
    constexpr double width = 960, height = 26;
    page.open("figure").open("svg", {{"viewBox", format("0 0 %.0f %.0f", width, height)},
                                     {"role", "img"},
                                     {"aria-label", "Shares of the run's time; the table below has them"}});
    double x = 0, whole = 0;
    for (const TimeShare& share : account.shares) whole += share.seconds;
    for (std::size_t i = 0; i < account.shares.size(); ++i) {
      const double wide = account.shares[i].seconds / whole * width;
      if (wide > 0) {
        page.open("rect", {{"class", "f" + std::to_string(i)},
                           {"x", format("%.2f", x)},
                           {"width", format("%.2f", wide)},
                           {"height", format("%.0f", height)}});
        page.element("title", account.shares[i].name + ", " + time_text(account.shares[i].seconds)).close();
      }
      x += wide;
    }
    page.close().close();
    std::vector<std::vector<std::string>> rows;
    for (const TimeShare& share : account.shares)
      if (share.seconds > 0)
        rows.push_back({share.name, time_text(share.seconds), format("%.1f %%", 100 * share.seconds / whole),
                        share.meaning});
    add_table(page, time_text(account.wall) + " from the first line of the log to the last",
              {"", "time", "share", "what it is"}, rows);
  }
  if (account.measured == 0)
    page.element("p", "Exposed communication was not measured: it counts as computing.", {{"class", "note"}});
  page.close();
}

bool is_bad(const std::string& kind) { return kind == "failed" || kind == "warning"; }

void add_troubles(Html& page, const Looked& run) {
  const std::string failures = text_in(run.folder / "failures.log", most_failures);
  open_section(page, "troubles-section", "What happened");
  const std::vector<LoggedEvent>& events = run.log.events;
  const std::size_t first = events.size() > most_events ? events.size() - most_events : 0;
  page.open("div", {{"class", "wide events"}}).open("table");
  page.element("caption", first > 0
                              ? detail::concat("the last ", most_events, " of ", events.size(), " events")
                              : detail::concat(events.size(), " events"));
  page.open("thead").open("tr");
  for (const char* head : {"when", "step", "what", "message"}) page.element("th", head, {{"scope", "col"}});
  page.close().close().open("tbody");
  for (std::size_t i = first; i < events.size(); ++i) {
    const LoggedEvent& event = events[i];
    page.open("tr").element("td", clock_text(event.time)).element("td", std::to_string(event.step));
    page.element("td", event.kind, {{"class", is_bad(event.kind) ? "bad" : ""}});
    page.element("td", printable(event.message, 4000)).close();
  }
  page.close().close().close();
  if (run.log.unreadable > 0)
    page.element("p", detail::concat(run.log.unreadable, " lines of the log could not be read."),
                 {{"class", "bad"}});
  if (run.log.redone_steps > 0)
    page.element("p", detail::concat(run.log.redone_steps, " steps were done again after a resume."));
  if (!failures.empty()) page.element("h3", "failures.log").element("pre", failures);
  page.close();
}

void add_ranks(Html& page, const RunLog& log) {
  if (!log.finish || log.finish->memory.empty()) return;
  std::vector<std::vector<std::string>> rows;
  const auto text = [](std::int64_t bytes) { return bytes > 0 ? size_text(bytes) : "-"; };
  std::size_t first = 0;  // number of the first rank of the last row
  for (std::size_t number = 0; number < std::min<std::size_t>(log.finish->memory.size(), 1024); ++number) {
    const RankMemory& rank = log.finish->memory[number];
    std::vector<std::string> row = {std::to_string(number),   text(rank.plan_bytes),
                                    text(rank.process_bytes), text(planned_bytes(rank)),
                                    text(rank.peak_bytes),    text(rank.device_plan_bytes),
                                    text(rank.device_bytes)};
    if (!rows.empty() && std::equal(row.begin() + 1, row.end(), rows.back().begin() + 1)) {
      rows.back().front() = detail::concat(first, " to ", number);
      continue;
    }
    first = number;
    rows.push_back(std::move(row));
  }
  open_section(page, "ranks-section", "Memory of ranks");
  add_table(page, "as planned, and as the system said at the end",
            {"rank", "plan", "process", "both planned", "peak", "plan on the device", "in use on the device"},
            rows);
  page.close();
}

void add_recipe(Html& page, const std::vector<RecipeLine>& lines) {
  open_section(page, "recipe-section", "Recipe");
  const auto table = [&](const char* caption, bool defaults) {
    std::vector<std::vector<std::string>> rows;
    for (const RecipeLine& line : lines)
      if (line.by_default() == defaults) rows.push_back({line.section, line.key, line.value, line.origin});
    page.open("div", {{"class", "plain"}});
    add_table(page, caption, {"section", "key", "value", "from"}, rows);
    page.close();
  };
  table("what was set", false);
  page.open("details").element("summary", "what is at its default");
  table("", true);
  page.close().close();
}

void add_versions(Html& page, const std::string& plugins) {
  std::vector<std::vector<std::string>> rows;
  try {
    const JsonValue list = parse_json(plugins, "plugins.json");
    for (const JsonValue& plugin : list.as_array())
      rows.push_back({plugin.at("kind").as_string() + "." + plugin.at("name").as_string(),
                      plugin.at("version").as_string(), plugin.at("build_id").as_string(),
                      plugin.at("sha256").as_string()});
  } catch (const Error&) {
    rows.clear();
  }
  open_section(page, "versions-section", "Versions");
  page.open("div", {{"class", "plain"}});
  add_table(page, "plugins that took part", {"plugin", "version", "build", "sha256"}, rows);
  page.close().close();
}

std::string made_text() {
  return "written by prun " + std::string(sdk_version) + " at " + clock_text(now_seconds());
}

}  // namespace

std::string run_page(const std::vector<fs::path>& folders, const AddPlan& add_plan) {
  if (folders.empty() || folders.size() > most_runs)
    throw_error(ErrorCode::bad_input, "a page shows from 1 to ", most_runs, " runs, not ", folders.size());
  std::vector<Looked> runs;
  runs.reserve(folders.size());
  for (const fs::path& folder : folders) runs.push_back(look_at(folder));
  const std::vector<Chart> charts = charts_of(runs);
  Html body;
  add_summary(body, runs);
  if (runs.size() > 1) add_differences(body, runs);
  add_curves(body, charts, runs);
  const Looked& first = runs.front();
  if (runs.size() > 1) return whole_page(detail::concat(runs.size(), " runs"), made_text(), charts, body);
  add_time(body, first.log);
  add_troubles(body, first);
  add_ranks(body, first.log);
  try {
    Html plan;
    add_plan(plan, first.log);
    body.add(plan);
  } catch (const Error& error) {
    open_section(body, "plan-section", "The plan");
    body.element("p", std::string("It cannot be made here: ") + error.what(), {{"class", "bad"}}).close();
  }
  add_recipe(body, recipe_lines_of(first.folder));
  add_versions(body, text_in(first.folder / "plugins.json"));
  const LoggedStart& start = *first.log.start();
  const std::string facts =
      detail::concat(first.folder.string(), " · begun ", clock_text(first.log.first_time()), " · ",
                     count_text(static_cast<double>(start.parameters)), " parameters · ",
                     start.tokens_per_step, " tokens a step · ", start.device, " · ", made_text());
  return whole_page(first.name, facts, charts, body);
}

std::string recipe_page(const Assembly& assembly, PluginHost& plugins, const Forecast& forecast,
                        const TuneResult* layouts) {
  Html body;
  if (layouts) add_layouts(body, *layouts);
  add_plan(body, assembly, plugins, forecast, nullptr);
  add_recipe(body, recipe_lines(assembly.recipe().resolved_toml()));
  return whole_page(printable(assembly.recipe().text("run.name"), longest_name),
                    detail::concat("a recipe, as planned · ", assembly.batch().text(), " · ",
                                   count_text(static_cast<double>(assembly.parameters())), " parameters · ",
                                   assembly.device_info().name.view(), " · ", made_text()),
                    {}, body);
}

}  // namespace prun
