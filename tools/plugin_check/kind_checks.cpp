#include "plugin_check/kind_checks.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "base/text.hpp"
#include "plan/pipeline/read_schedule.hpp"
#include "plan/pipeline/timing.hpp"
#include "plugin/traits.hpp"
#include "plugin_check/comm_check.hpp"
#include "plugin_check/conformance.hpp"
#include "plugin_check/device_check.hpp"
#include "plugin_check/op_checks.hpp"
#include "plugin_check/program_checks.hpp"
#include "plugin_check/tiny_recipe.hpp"
#include "prun/data.hpp"
#include "prun/observer.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/assemble/program_writer.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- data check
// Checks samples of a data plugin, read in several orders.

constexpr std::int64_t seq = 64;
constexpr std::size_t fence = 16;
constexpr std::int32_t untouched[] = {-0x35a5a5a6, 0x5a5a5a5a};
constexpr std::uint8_t untouched_roles[] = {0xff, 0xfe};

struct Sample {
  std::vector<std::int32_t> tokens, targets;
  bool operator==(const Sample&) const = default;
};

template <class T>
std::vector<T> fenced(T before) {
  return std::vector<T>(static_cast<std::size_t>(seq) + 2 * fence, before);
}

// Holds memory between fences, which must stay as they were.
template <class T>
std::vector<T> within(const std::vector<T>& row, T before, std::int64_t index, const char* call,
                      const char* what) {
  const auto begin = row.begin() + fence, end = row.end() - fence;
  const auto same = [&](T x) { return x == before; };
  if (!std::all_of(row.begin(), begin, same) || !std::all_of(end, row.end(), same))
    throw_error(ErrorCode::bad_input, call, " of sample ", index, " writes beside the ", seq, what,
                " that it was given room for");
  return std::vector<T>(begin, end);
}

// Reads a sample into memory that is filled before, between fences.
Sample read(DataInterface& data, std::int64_t index, std::int32_t before) {
  std::vector<std::int32_t> tokens = fenced(before), targets = fenced(before);
  raise(data.read(index, tokens.data() + fence, targets.data() + fence));
  return {within(tokens, before, index, "read()", " tokens"),
          within(targets, before, index, "read()", " targets")};
}

std::vector<std::uint8_t> read_roles(DataInterface& data, std::int64_t index, std::uint8_t before) {
  std::vector<std::uint8_t> roles = fenced(before);
  raise(data.roles(index, roles.data() + fence));
  return within(roles, before, index, "roles()", " roles");
}

DataInfo open(DataInterface& data) {
  DataInfo info;
  raise(data.open(seq, &info));
  return info;
}

void check_range(const Sample& sample, std::int64_t index, const DataInfo& info) {
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    const std::int32_t token = sample.tokens[i], target = sample.targets[i];
    if (token < 0)
      throw_error(ErrorCode::bad_input, "cannot use sample ", index, ": its token ", i, " is ", token,
                  "; return tokens from 0 on");
    if (info.vocab > 0 && std::max(token, target) >= info.vocab)
      throw_error(ErrorCode::bad_input, "sample ", index, " has ", std::max(token, target), " in place ", i,
                  ", and open() says that the vocabulary is ", info.vocab);
  }
}

// Reads every sample, or as many as take a moment, from all over the set.
std::int64_t check_ranges(DataInterface& data, const DataInfo& info) {
  constexpr std::int64_t most_samples = 50'000;
  const std::int64_t count = std::min(info.samples, most_samples);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::int64_t i = 0;
  for (; i < count && std::chrono::steady_clock::now() < end; ++i) {
    const auto index = static_cast<std::int64_t>(static_cast<double>(i) / static_cast<double>(count) *
                                                 static_cast<double>(info.samples));
    check_range(read(data, index, untouched[i % 2]), index, info);
  }
  return i;
}

// Returns how many roles the plugin's trait names.
std::size_t count_roles(const PluginNote& note) {
  const std::string_view named = trait_of(note, "roles");
  return named.empty() ? 0 : split(named, ',').size();
}

// Must come after read(), as in training. Only targets that count have a role.
void check_roles(DataInterface& data, DataInterface& other, std::int64_t index, std::size_t known) {
  const Sample sample = read(data, index, untouched[0]);
  const std::vector<std::uint8_t> roles = read_roles(data, index, untouched_roles[0]);
  read(other, index, untouched[1]);
  const std::vector<std::uint8_t> again = read_roles(other, index, untouched_roles[1]);
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (sample.targets[i] < 0) continue;
    if (roles[i] >= known)
      throw_error(ErrorCode::bad_input, "target ", i, " of sample ", index, " is of role ", int{roles[i]},
                  ", and the trait `roles` names ", known);
    if (roles[i] != again[i])
      throw_error(ErrorCode::bad_input, "target ", i, " of sample ", index, " is of role ", int{roles[i]},
                  ", of a second object of role ", int{again[i]}, "; it must be the same");
  }
}

CheckFinding check_data(const TriedPlugin& plugin) {
  auto& data = *static_cast<DataInterface*>(plugin.object);
  plugin.doing("open()");
  const DataInfo info = open(data);
  if (info.samples < 1)
    return {detail::concat("not checked: with default options there are ", info.samples, " samples"), false};
  const std::shared_ptr<void> another = plugin.create(plugin.options);
  auto& other = *static_cast<DataInterface*>(another.get());
  if (const DataInfo again = open(other); again.samples != info.samples || again.vocab != info.vocab)
    throw_error(ErrorCode::bad_input, "open() of a second object says ", again.samples,
                " samples and a vocabulary of ", again.vocab, ", that of the first ", info.samples, " and ",
                info.vocab);
  std::vector<std::int64_t> indices = {0, 1, info.samples / 2, info.samples - 1};
  std::erase_if(indices, [&](std::int64_t index) { return index >= info.samples; });
  plugin.doing("read()");
  std::vector<Sample> first;
  for (std::int64_t index : indices) first.push_back(read(data, index, untouched[0]));
  for (std::size_t i = indices.size(); i-- > 0;) {
    check_range(first[i], indices[i], info);
    for (DataInterface* reader : {&data, &other})
      if (read(*reader, indices[i], untouched[1]) != first[i])
        throw_error(ErrorCode::bad_input, "sample ", indices[i], " is another one when it is read again",
                    reader == &other ? " by a second object" : "",
                    "; it must be the same for the same number, whatever was read before, and whole");
  }
  const std::int64_t ranged = check_ranges(data, info);
  const std::size_t roles = count_roles(plugin.note);
  if (roles == 0)
    return {detail::concat("samples ", indices.size(), " of ", info.samples, ", numbers of ", ranged)};
  plugin.doing("roles()");
  for (const std::int64_t index : indices) check_roles(data, other, index, roles);
  return {detail::concat("samples ", indices.size(), " of ", info.samples, ", ", roles, " roles")};
}

// ------------------------------------------------------------------- observer check
// Checks an observer with a run that did not take place.

StepInfo step_of(std::int64_t step) {
  StepInfo info;
  info.step = step;
  info.loss = 4.5;
  info.grad_norm = 1.25;
  info.lr = 1e-3;
  info.targets = info.tokens = 512;
  info.all_tokens = 512 * step;
  info.seconds = 0.5;
  info.elapsed = 0.5 * static_cast<double>(step);
  return info;
}

// Returns steps that differ from most.
std::vector<StepInfo> steps() {
  std::vector<StepInfo> all = {step_of(1), step_of(2), step_of(3), step_of(4)};
  all[1].exposed_seconds = 0.1;
  all[1].save_seconds = all[1].compare_seconds = 0.2;
  all[2].loss = std::nan("");
  all[2].grad_norm = INFINITY;
  all[2].kept = false;
  all[3].seconds = 0;
  all[3].targets = 0;
  return all;
}

CheckFinding check_observer(const TriedPlugin& plugin) {
  auto& observer = *static_cast<ObserverInterface*>(plugin.object);
  const TrialFolder place;
  const std::string folder = place.path().string();
  RunInfo run;
  run.name = "trial";
  run.recipe = "trial";
  run.folder = folder;
  run.device = "none";
  run.steps = 4;
  run.parameters = 1000;
  run.tokens_per_step = 512;
  plugin.doing("start()");
  raise(observer.start(run));
  plugin.doing("step()");
  for (const StepInfo& step : steps()) raise(observer.step(step));
  plugin.doing("evaluation()");
  raise(observer.evaluation({4, 4.25, 512, 0.5}));
  plugin.doing("event()");
  for (const EventKind kind :
       {EventKind::note, EventKind::warning, EventKind::saved, EventKind::stopped, EventKind::failed})
    for (const char* const text : {"", "a line", "two\nlines \"and\" \x01 \xff"})
      raise(observer.event(kind, text));
  plugin.doing("finish()");
  const RankMemory memory[] = {{}, {}};
  raise(observer.finish({{memory, 2}, 0.5}));
  return {};
}

// ------------------------------------------------------------------- trial

constexpr std::int32_t tried_ranks = 4, most_chunks = 4;
// All small numbers, and some that are larger or odd: what a schedule does in its middle shows there alone.
constexpr std::int32_t microbatches[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 17};

// Returns false where the schedule refuses this shape.
bool try_shape(ScheduleInterface& schedule, const ScheduleShape& shape, ScheduleTraits traits,
               const std::string& name) {
  if (!schedule_problem(schedule, shape, name).empty()) return false;
  const PipelineOrder first = read_schedule(schedule, shape, traits, name);
  const PipelineOrder second = read_schedule(schedule, shape, traits, name);
  if (first.calls != second.calls || first.stages != second.stages)
    throw_error(ErrorCode::bad_input, describe(name, shape),
                ": it returned another order the second time; ranks that ask for themselves would disagree");
  if (first.theory && !(std::abs(first.theory->share - bubble_of(first)) <= 1e-9))
    throw_error(ErrorCode::bad_input, describe(name, shape), ": bubble() says ", first.theory->formula, " = ",
                first.theory->share, " of a step, and its order is idle for ", bubble_of(first));
  return true;
}

}  // namespace

std::string try_schedule(ScheduleInterface& schedule, ScheduleTraits traits, const std::string& name) {
  int tried = 0, taken = 0;
  ScheduleShape shape;
  for (shape.ranks = 1; shape.ranks <= tried_ranks; ++shape.ranks)
    for (const std::int32_t number : microbatches)
      for (shape.microbatches = number, shape.chunks = 1; shape.chunks <= most_chunks; ++shape.chunks) {
        ++tried;
        taken += try_shape(schedule, shape, traits, name);
      }
  if (taken == 0)
    throw_error(ErrorCode::bad_input, "schedule '", name, "' refuses all of the ", tried, " shapes of up to ",
                tried_ranks, " ranks, ", microbatches[std::size(microbatches) - 1], " microbatches and ",
                most_chunks, " chunks");
  return detail::concat(taken, " of ", tried, " small shapes");
}

namespace {

// ------------------------------------------------------------------- kind checks

template <class Interface>
Interface& as(const TriedPlugin& plugin) {
  return *static_cast<Interface*>(plugin.object);
}

CheckFinding check_schedule(const TriedPlugin& plugin) {
  return {try_schedule(as<ScheduleInterface>(plugin), schedule_traits(plugin.note), plugin.note.name)};
}

// Wraps one of the checks of an op plugin, with the CPU's kernels for all other ops.
auto of_ops(const std::vector<SearchPlace>& places, CheckFinding (*check)(const OpsOnTrial& trial)) {
  return [=](const TriedPlugin& plugin) {
    const CpuKernels cpu(places);
    return check(ops_of(as<OpPluginInterface>(plugin), plugin.note.name, cpu.kernels(), plugin.doing));
  };
}

}  // namespace

std::vector<KindCheck> kind_checks(const std::vector<SearchPlace>& places, const std::string& given,
                                   const std::optional<std::filesystem::path>& recipe) {
  return {
      {"model", "writes the same program each time, in which every parameter reaches the loss",
       check_model_program},
      {"model", "has gradients that agree with finite differences of its loss",
       [=](const TriedPlugin& plugin) { return check_model_gradients(plugin, places, given); }},
      {"model", "is built or refused in words with each option at its ends",
       [=](const TriedPlugin& plugin) { return check_model_options(plugin, given); }},
      {"schedule", "gives every small shape it accepts an order that is complete and ends", check_schedule},
      {"op",
       "has kernels that write all of their results, nothing beside them, and read no more than they are "
       "given",
       of_ops(places, check_memory)},
      {"op", "has kernels whose bits do not depend on threads", of_ops(places, check_threads)},
      {"op", "has gradients that agree with finite differences", of_ops(places, check_gradients)},
      {"op", "has rules whose marks agree with computing in parts", of_ops(places, check_marks)},
      {"op", "has kernels for other devices that compute what those for the CPU do",
       [=](const TriedPlugin& plugin) { return check_kernels_elsewhere(plugin, places); }},
      {"strategy",
       "leaves every model's losses, gradients and parameters as one rank computes them, with ZeRO and "
       "without",
       [=](const TriedPlugin& plugin) { return check_strategy(plugin, places, given, recipe); }},
      {"optimizer",
       "updates what it is given, in the same bits each time, and nothing where it is told to keep",
       [=](const TriedPlugin& plugin) { return check_optimizer(plugin, places); }},
      {"data", "gives the same sample for the same number, whole and within its vocabulary", check_data},
      {"observer", "survives all that it may be told", check_observer},
      {"device", "gives memory, queues and kernels as its header says", check_device},
      {"device", "has kernels that compute what those of the device 'cpu' do",
       [=](const TriedPlugin& plugin) { return check_device_kernels(plugin, places); }},
      {"comm", "does every exchange of two and three ranks as it is defined, and counts its bytes",
       check_comm},
      {"comm", "lets a rank go that waits for another, once it is told to", check_comm_abort}};
}

}  // namespace prun
