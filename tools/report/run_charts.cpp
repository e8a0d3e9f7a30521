#include "report/run_charts.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/text.hpp"

namespace prun {
namespace {

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

}  // namespace

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

}  // namespace prun
