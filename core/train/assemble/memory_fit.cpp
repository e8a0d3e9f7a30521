#include "train/assemble/memory_fit.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "plan/bound_calls.hpp"
#include "plan/offsets.hpp"
#include "plan/persistent.hpp"
#include "plugin/plugin_lines.hpp"
#include "plugin/traits.hpp"
#include "program/passes.hpp"
#include "prun/data.hpp"
#include "train/assemble/does_not_fit.hpp"
#include "train/assemble/one_host.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/assemble/recipe_checks.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ data memory

// Counts what data plugins hold in memory, beside what a rank's process has in any case.

std::int64_t held_by(const RecipeSection& section, PluginHost& plugins, std::int64_t seq) {
  const std::string_view each = trait_of(plugins.note("data", section.plugin()), "token_bytes");
  if (each.empty()) return 0;
  DataInfo info;
  const OpenedUnsaid to_measure;
  try {
    raise(plugins.create<DataInterface>("data", section)->open(seq, &info));
  } catch (const Error&) {
    return 0;
  }
  return info.tokens * std::stoll(std::string(each));
}

// Counts the bytes of what a rank of this recipe opens. Plugins that hold something for each token (trait
// token_bytes) are opened to find how many tokens they have; data that cannot be opened count as nothing
// here, and are refused when they are opened to be read.
std::int64_t data_bytes(const Recipe& recipe, PluginHost& plugins, std::int64_t seq, bool trains,
                        bool evaluates) {
  std::int64_t own = held_by(recipe.section("data"), plugins, seq), apart = 0;
  for (const RecipeSection& section : recipe.sections("data.blend")) own += held_by(section, plugins, seq);
  for (const RecipeSection& section : recipe.sections("validation"))
    if (evaluates) apart += held_by(section, plugins, seq);
  const bool keeps_a_part = recipe.sections("validation").empty();
  return (trains ? own : 0) + (evaluates ? keeps_a_part ? own : apart : 0);
}

std::int64_t most_needed(const Assembly& assembly, std::int64_t ProcessNeed::*need) {
  std::int64_t most = 0;
  for (const ProcessNeed& stage : assembly.process_needs()) most = std::max(most, stage.*need);
  return most;
}

// Names the largest parameter that is too large alone, since an op has its parameter whole, wherever that
// lies in between.
std::string too_large_alone(const Program& program, std::int64_t limit) {
  Id largest = none;
  for (const Id id : program.parameters())
    if (program.local_bytes(id) > (largest == none ? limit : program.local_bytes(largest))) largest = id;
  if (largest == none) return "";
  const Value& value = program.value(largest);
  return detail::concat(
      "; '", program.segment(value.segment).name, ".", value.name, "' alone has ",
      size_text(program.local_bytes(largest)),
      ", and whoever computes with it needs it whole: split it over ranks (strategy tensor)");
}

// Adds the memory that a save passes through; ranks of a stage share out what is saved. It is allocated when
// all that the run starts from has been read.
void add_saves(const Assembly& assembly, int rank, std::int64_t stages, ProcessNeed& need) {
  const Recipe& recipe = assembly.recipe();
  const std::int64_t world = assembly.mesh().world();
  const SaveMemory said = save_memory(recipe);
  need.saved_bytes = persistent_bytes(assembly.program(), assembly.plan_of(rank).instances) * stages / world;
  need.save_bytes =
      said.all ? need.saved_bytes : std::min(need.saved_bytes, said.bytes.value_or(least_save_bytes));
  need.tensor_bytes =
      bytes_of_tensor * static_cast<std::int64_t>(
                            persistent_tensors(assembly.program(), assembly.plan_of(rank).instances).size());
  need.bytes += need.tensor_bytes;
  // Floats of two halves are joined a piece at a time.
  if (recipe.text("precision.master") == "split")
    need.bytes += std::min(need.saved_bytes, checksum_chunk_bytes);
  // Bytes that threads read from drives pass through memory of the tier.
  if (has_drives(assembly.plan_of(rank)))
    need.bytes += std::min(need.saved_bytes, drive_readers * checksum_chunk_bytes);
  need.bytes += std::max(need.save_bytes, reading_bytes(recipe, assembly.device_info(), world));
}

// ------------------------------------------------------------ saves and speculative updates

bool saves_take_the_rest(const Recipe& recipe) {
  const SaveMemory said = save_memory(recipe);
  return saves_between_steps(recipe) && !said.all && !said.bytes;
}

// Returns how much more than the least saves use of what is left. Files are written through the system's
// cache, which other programs use too.
std::int64_t more_for_saves(const ProcessNeed& need, const std::optional<std::int64_t>& left) {
  const std::int64_t more = left ? std::max<std::int64_t>(*left, 0) / 4 * 3 : need.saved_bytes;
  return std::min(need.saved_bytes - need.save_bytes, more);
}

// Returns, by n, what the first n speculative updates of a plan hold at most.
std::vector<std::int64_t> held_by_first(const Assembly& assembly) {
  std::vector<std::int64_t> most = {0};
  for (const Plan& plan : assembly.plans()) {
    std::map<Id, std::int64_t> of_segment;
    for (const auto& [id, home] : plan.homes)
      if (home.region == Region::arrived)
        of_segment[assembly.program().value(id).segment] += align(home.bytes);
    std::size_t count = 0;
    std::int64_t held = 0;
    for (const Call& call : plan.calls)
      if (const PlannedFunction& function = plan.functions[call.function];
          function.kind == FunctionKind::speculate && call.instance > 0 && call.piece == 0) {
        held += of_segment[function.segment];
        if (++count == most.size()) most.push_back(most.back());
        most[count] = std::max(most[count], held);
      }
  }
  return most;
}

// Returns what hosts have left of their memory for a rank if nothing is speculative.
std::optional<std::int64_t> left_without_speculation(const Assembly& assembly) {
  const std::optional<std::int64_t> left = left_on_hosts(assembly);
  return left ? *left + held_by_first(assembly).back() : left;
}

}  // namespace

std::int32_t speculated_that_fit(const Assembly& assembly) {
  const std::vector<std::int64_t> held = held_by_first(assembly);
  const std::optional<std::int64_t> left = left_without_speculation(assembly);
  std::int64_t room = left.value_or(held.back());
  if (left && saves_take_the_rest(assembly.recipe()))
    for (const ProcessNeed& need : assembly.process_needs())
      room = std::min(room, *left - more_for_saves(need, left));
  if (assembly.device_info().host_memory)
    room = std::min(room, memory_limit(assembly) - bytes_needed(assembly) + held.back());
  const auto beyond = std::upper_bound(held.begin() + 1, held.end(), room);
  return static_cast<std::int32_t>(beyond - held.begin()) - 1;
}

void leave_rest_to_saves(const Assembly& assembly, std::vector<ProcessNeed>& needs) {
  if (!saves_take_the_rest(assembly.recipe())) return;
  const std::optional<std::int64_t> left = left_without_speculation(assembly), now = left_on_hosts(assembly);
  for (ProcessNeed& need : needs) {
    const std::int64_t more = more_for_saves(need, left),
                       there = now ? std::max<std::int64_t>(*now, 0) : more;
    const std::int64_t grown = need.save_bytes + std::min(more, there);
    const std::int64_t reading =
        reading_bytes(assembly.recipe(), assembly.device_info(), assembly.mesh().world());
    need.bytes += std::max(grown, reading) - std::max(need.save_bytes, reading);
    need.save_bytes = grown;
  }
}

std::int64_t data_bytes_of(const Assembly& assembly, PluginHost& plugins) {
  const bool trains = assembly.purpose() == Purpose::training,
             evaluates = assembly.evaluation() != nullptr || assembly.purpose() == Purpose::evaluation;
  return data_bytes(assembly.recipe(), plugins, assembly.batch().seq, trains, evaluates);
}

std::vector<ProcessNeed> process_needs_of(const Assembly& assembly, PluginHost& plugins,
                                          std::int64_t data_bytes) {
  const Recipe& recipe = assembly.recipe();
  const DeviceInfo& device = assembly.device_info();
  std::vector<ProcessNeed> needs;
  const std::vector<int> ranks =
      assembly.pipeline() ? assembly.mesh().group(0, assembly.pipeline()->axis) : std::vector<int>{0};
  for (const int rank : ranks) {
    ProcessNeed need = process_need({recipe, device, plugins, assembly.mesh(), assembly.plan_of(rank), rank},
                                    std::span(assembly.device_infos()).subspan(1));
    need.call_bytes = bound_bytes(assembly.plan_of(rank));
    if (assembly.evaluation()) need.call_bytes += bound_bytes(assembly.evaluation_plan_of(rank));
    for (const StepPlans& step : assembly.other_steps())
      need.call_bytes += bound_bytes(assembly.plan_of(step, rank));
    need.bytes += data_bytes + need.call_bytes;
    if (assembly.purpose() == Purpose::training)
      add_saves(assembly, rank, static_cast<std::int64_t>(ranks.size()), need);
    needs.push_back(need);
  }
  return needs;
}

std::int64_t memory_limit(const Assembly& assembly) {
  const std::int64_t all =
      assembly.device_info().memory_bytes - most_needed(assembly, &ProcessNeed::device_bytes);
  const std::int64_t process =
      assembly.device_info().host_memory ? most_needed(assembly, &ProcessNeed::bytes) : 0;
  const std::optional<std::int64_t> said = assembly.recipe().section("device").bytes("memory");
  return said ? std::min(*said, all) : all - process;
}

std::int64_t bytes_needed(const Assembly& assembly) {
  std::int64_t largest = 0;
  for (const Plan& plan : assembly.plans()) largest = std::max(largest, assembly.bytes_in_memory_of(0, plan));
  return largest;
}

// Strategies placed what lies on these devices: computing more again moves little of it.
std::string missing_further_memory(const Assembly& assembly) {
  for (std::size_t number = 1; number < assembly.device_infos().size(); ++number) {
    if (!assembly.knows_memory_of(number)) continue;
    const DeviceInfo& info = assembly.device_infos()[number];
    std::int64_t needed = 0;
    for (const Plan& plan : assembly.plans())
      needed = std::max(needed, assembly.bytes_in_memory_of(number, plan));
    const std::int64_t process =
        info.host_memory ? most_needed(assembly, &ProcessNeed::bytes) : info.process_device_bytes;
    if (needed <= info.memory_bytes - process) continue;
    const auto size = [](std::int64_t bytes) { return size_text(bytes); };
    return detail::concat(
        "device ", number, " ('", info.name.view(), "'): the plan needs ", size(needed), " of its memory",
        process == 0 ? "" : " and a rank's process " + size(process) + " beside it", ", ",
        size(info.memory_bytes),
        " may be used in all; let the strategy that uses it place less there, or take a smaller model",
        assembly.hint_of_more_memory(number));
  }
  return "";
}

void refuse_memory(const Assembly& last, const NotFitting& tried) {
  if (!tried.further.empty()) throw DoesNotFit(ErrorCode::bad_input, tried.further);
  const std::int64_t limit = memory_limit(last);
  const auto size = [](std::int64_t bytes) { return size_text(bytes); };
  const std::int64_t own = most_needed(last, &ProcessNeed::device_bytes);
  const WayToFit ways = last.unlowered().requests().ways_to_fit;
  const char* const with =
      ways.strategies > 1 || ways.sums > 1 ? " with all that strategies may change" : " with full recompute";
  const std::string least = tried.least == tried.needed ? "" : detail::concat(", ", size(tried.least), with);
  const std::string beside = own == 0 ? "" : detail::concat(" beside ", size(own), " of the process");
  const std::string rest =
      limit > 0 ? detail::concat(", ", size(limit),
                                 " may be used; a smaller batch.micro, model.seq or model needs less")
                : detail::concat(" and a rank's process ", size(last.device_info().memory_bytes - limit),
                                 " beside it, ", size(last.device_info().memory_bytes),
                                 " may be used in all; raise this machine's or container's limit on memory");
  const std::string refused =
      tried.refused.empty() ? "" : "; what strategies might change besides is refused: " + tried.refused;
  const std::string more = last.recipe().section("device").bytes("memory") ? "" : last.hint_of_more_memory(0);
  Diagnostics problems;
  problems.add(last.recipe().problem("device.memory", "the plan needs " + size(tried.needed) + least +
                                                          beside + rest + more +
                                                          too_large_alone(last.program(), limit) + refused));
  throw DoesNotFit(ErrorCode::bad_input, problems.text());
}

}  // namespace prun
