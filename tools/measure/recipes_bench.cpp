#include "measure/recipes_bench.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "estimate/number_text.hpp"

namespace prun {
namespace {

using Cells = std::vector<std::string>;

const Cells heads = {"recipe", "size",    "ranks",  "a step",      "spread",      "tokens/s",
                     "speed",  "planned", "in use", "sent a step", "exposed comm"};

// Returns the row of the first recipe at the same size, where that has times.
const RecipeRow* first_of(const std::vector<RecipeRow>& rows, const RecipeRow& row) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const RecipeRow& one) { return one.facts.size == row.facts.size; });
  return found == rows.end() || found->rounds.empty() ? nullptr : &*found;
}

// Returns how many times as many tokens a second the row has as the first recipe of its size.
std::optional<double> speed_of(const std::vector<RecipeRow>& rows, const RecipeRow& row) {
  const RecipeRow* const first = first_of(rows, row);
  if (!first) return {};
  return row.cost().tokens_per_second / first->cost().tokens_per_second;
}

std::string exposed_text(const SettingCost& cost) {
  return cost.exposed_seconds ? format("%.1f %%", 100 * *cost.exposed_seconds / cost.step_seconds) : "-";
}

Cells cells_of(const std::vector<RecipeRow>& rows, const RecipeRow& row) {
  Cells cells = {row.facts.file, row.facts.size.empty() ? "-" : row.facts.size,
                 row.facts.ranks > 0 ? std::to_string(row.facts.ranks) : "-"};
  if (row.rounds.empty()) {
    cells.push_back("refused: " + row.refused);
    return cells;
  }
  const SettingCost& cost = row.cost();
  const std::optional<double> speed = speed_of(rows, row);
  cells.push_back(time_text(cost.step_seconds));
  cells.push_back(format("%.1f %%", 100 * row.spread()));
  cells.push_back(rate_text(cost.tokens_per_second));
  cells.push_back(speed ? format("%.2f", *speed) : "-");
  cells.push_back(size_text(cost.planned_bytes));
  cells.push_back(cost.measured_bytes > 0 ? size_text(cost.measured_bytes) : "-");
  cells.push_back(size_text(cost.sent_bytes));
  cells.push_back(exposed_text(cost));
  return cells;
}

void write_row(JsonWriter& json, const std::vector<RecipeRow>& rows, const RecipeRow& row) {
  const RecipeFacts& facts = row.facts;
  json.begin_object().member("recipe", facts.file).member("size", facts.size).member("model", facts.model);
  json.member("layout", facts.layout).member("device", facts.device).member("ranks", facts.ranks);
  json.member("parameters", facts.parameters).member("global", facts.global).member("micro", facts.micro);
  json.member("seq", facts.seq).member("tokens", facts.tokens());
  if (row.rounds.empty()) {
    json.member("refused", row.refused).end_object();
    return;
  }
  const SettingCost& cost = row.cost();
  json.member("step_seconds", cost.step_seconds).member("tokens_per_second", cost.tokens_per_second);
  json.member("spread", row.spread()).member("planned_bytes", cost.planned_bytes);
  json.member("measured_bytes", cost.measured_bytes).member("sent_bytes", cost.sent_bytes);
  json.member("host_bytes", cost.host_bytes).member("disk_bytes", cost.disk_bytes);
  write_memory(json, cost);
  if (cost.exposed_seconds) json.member("exposed_seconds", *cost.exposed_seconds);
  if (const auto speed = speed_of(rows, row)) json.member("speed", *speed);
  json.name("round_step_seconds").begin_array();
  for (const SettingCost& round : row.rounds) json.value(round.step_seconds);
  json.end_array().end_object();
}

[[noreturn]] void refuse_each(const std::string& each) {
  throw_error(ErrorCode::bad_input,
              "--each takes KEY=V1,V2, or KEY+KEY=V1+W1,V2+W2 of keys that vary together, not ",
              in_quotes(each));
}

}  // namespace

std::vector<BenchedSize> sizes_of(const std::string& each) {
  const std::size_t equals = each.find('=');
  if (equals == std::string::npos || equals == 0) refuse_each(each);
  const std::vector<std::string_view> keys = split(std::string_view(each).substr(0, equals), '+');
  std::vector<BenchedSize> sizes;
  for (const std::string_view values : split(std::string_view(each).substr(equals + 1), ',')) {
    const std::vector<std::string_view> parts = split(values, '+');
    if (parts.size() != keys.size()) refuse_each(each);
    BenchedSize& size = sizes.emplace_back();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (trim(parts[i]).empty()) refuse_each(each);
      size.sets.push_back(detail::concat(trim(keys[i]), "=", trim(parts[i])));
    }
    size.name = join(size.sets, " ");
  }
  return sizes;
}

RecipeFacts facts_of(const std::string& file, const std::string& size, const Assembly& assembly) {
  const Recipe& recipe = assembly.recipe();
  RecipeFacts facts{
      file, size, recipe.section("model").plugin(), {}, std::string(assembly.device_info().name.view())};
  std::vector<std::string> layout;
  for (const Axis& axis : assembly.mesh().axes())
    if (axis.extent > 1) layout.push_back(detail::concat(axis.name, " ", axis.extent));
  for (const RecipeSection& strategy : recipe.strategies()) layout.push_back(strategy.plugin());
  facts.layout = join(layout, ", ");
  facts.ranks = assembly.mesh().world();
  facts.parameters = assembly.parameters();
  facts.global = assembly.batch().global;
  facts.micro = assembly.batch().micro;
  facts.seq = assembly.batch().seq;
  return facts;
}

const SettingCost& RecipeRow::cost() const {
  std::vector<const SettingCost*> order;
  for (const SettingCost& round : rounds) order.push_back(&round);
  std::sort(order.begin(), order.end(),
            [](const SettingCost* a, const SettingCost* b) { return a->step_seconds < b->step_seconds; });
  return *order.at((order.size() - 1) / 2);
}

double RecipeRow::spread() const {
  const auto [least, most] = std::minmax_element(
      rounds.begin(), rounds.end(),
      [](const SettingCost& a, const SettingCost& b) { return a.step_seconds < b.step_seconds; });
  return (most->step_seconds - least->step_seconds) / cost().step_seconds;
}

std::string recipes_text(const std::vector<RecipeRow>& rows) {
  std::vector<Cells> table = {heads};
  for (const RecipeRow& row : rows) table.push_back(cells_of(rows, row));
  std::vector<std::size_t> widths(heads.size());
  for (const Cells& cells : table)
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (cells.size() == heads.size() || i + 1 < cells.size())
        widths[i] = std::max(widths[i], cells[i].size());
  std::string text;
  for (const Cells& cells : table) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i)
      line += (i ? "  " : "") + format(i < 2 ? "%-*s" : "%*s", static_cast<int>(widths[i]), cells[i].c_str());
    text += line + "\n";
  }
  return text;
}

std::string recipes_markdown(const std::vector<RecipeRow>& rows, const Provenance& made) {
  const auto line = [](const Cells& cells) { return "| " + join(cells, " | ") + " |\n"; };
  std::string text =
      "<!-- written by prun bench recipes -->\n" + line(heads) + line(Cells(heads.size(), "---"));
  for (const RecipeRow& row : rows) {
    Cells cells = cells_of(rows, row);
    cells.resize(heads.size());
    text += line(cells);
  }
  text += detail::concat("\n`", made.command, "`, ", made.date, ", prun ", made.version, ", ", made.machine,
                         "; ", made.steps, " steps in each of ", made.rounds,
                         made.rounds == 1 ? " round" : " rounds, the middle one shown", ".\n");
  return text;
}

std::string recipes_json(const std::vector<RecipeRow>& rows, const Provenance& made) {
  JsonWriter json;
  json.begin_object().member("made_by", "prun bench recipes").member("command", made.command);
  json.member("date", made.date).member("version", made.version).member("machine", made.machine);
  json.member("steps", made.steps).member("rounds", made.rounds).name("recipes").begin_array();
  for (const RecipeRow& row : rows) write_row(json, rows, row);
  return json.end_array().end_object().take();
}

std::string recipes_csv(const std::vector<RecipeRow>& rows) {
  std::string text =
      "recipe,size,ranks,step_seconds,spread,tokens_per_second,planned_bytes,measured_bytes,sent_bytes\n";
  for (const RecipeRow& row : rows) {
    text += detail::concat(row.facts.file, ",", row.facts.size, ",", row.facts.ranks, ",");
    if (row.rounds.empty()) {
      text += ",,,,,\n";
      continue;
    }
    const SettingCost& cost = row.cost();
    text += format("%.9g,%.9g,%.9g,", cost.step_seconds, row.spread(), cost.tokens_per_second) +
            detail::concat(cost.planned_bytes, ",", cost.measured_bytes, ",", cost.sent_bytes, "\n");
  }
  return text;
}

}  // namespace prun
