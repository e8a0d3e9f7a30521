#include "run/assembly.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "placement/pack.hpp"
#include "placement/placement.hpp"
#include "plan/ranks.hpp"
#include "program/passes.hpp"
#include "program/recompute.hpp"
#include "run/process_memory.hpp"

namespace prun {
namespace {

DType dtype_named(const std::string& name) {
  for (DType t : {DType::f64, DType::f32, DType::bf16})
    if (name == name_of(t)) return t;
  throw_error(ErrorCode::internal, "no number format '", name, "'");
}

Precision precision_of(const Recipe& recipe) {
  const DType state = dtype_named(recipe.text("precision.state"));
  const std::string& reduce = recipe.text("precision.reduce");
  return {dtype_named(recipe.text("precision.compute")), state,
          reduce == "state" ? state : dtype_named(reduce)};
}

constexpr std::array phases = {"model", "shard", "partition", "state", "memory", "order"};

// "batch" in "batch,seq".
bool names(std::string_view list, std::string_view word) {
  for (const std::string_view item : split(list, ','))
    if (item == word) return true;
  return false;
}

// One of the patterns in "tensor,zb-*".
bool any_matches(std::string_view patterns, std::string_view text) {
  for (const std::string_view pattern : split(patterns, ','))
    if (glob_match(pattern, text)) return true;
  return false;
}

}  // namespace

// In the order they are written: the last axis varies fastest from rank to rank.
Mesh mesh_of(const Recipe& recipe) {
  std::vector<Axis> axes;
  const RecipeSection section = recipe.section("mesh");
  for (const auto& entry : section.entries())
    if (entry.value)
      axes.push_back({entry.path.substr(entry.path.rfind('.') + 1), std::get<std::int64_t>(*entry.value)});
  return Mesh(std::move(axes));
}

std::string BatchArithmetic::text() const {
  const std::string padded = padding() ? detail::concat(" - ", padding(), " padding") : "";
  return detail::concat(global, " sequences = ", micro, " micro x ", accumulate, " accumulate x ", ranks,
                        ranks == 1 ? " rank" : " ranks", padded, " = ", tokens(), " tokens a step");
}

bool glob_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Assembly::Assembly(Recipe recipe, PluginHost& plugins, std::int64_t rank)
    : recipe_(std::move(recipe)), plugins_(plugins), rank_(rank) {
  check_combinations();
  batch_.global = recipe_.integer("batch.global");
  batch_.micro = recipe_.integer("batch.micro");
  batch_.ranks = data_ranks();
  const std::int64_t at_once = batch_.micro * batch_.ranks;
  batch_.accumulate = (batch_.global + at_once - 1) / at_once;
  batch_.seq = recipe_.integer("model.seq");
  load_ops();
  device_ = plugins_.create<DeviceInterface>("device", recipe_.section("device"));
  raise(device_->info(&device_info_));
  make_fitting_plan();
}

// Stages differ, so each rank makes the plans of all of them: what they send must be what they expect.
// Returns the bytes of the largest.
std::int64_t Assembly::make_plans() {
  plans_.clear();
  if (!pipeline_) {
    plans_.push_back(make_plan(*program_, lowering(), batch_.accumulate, rank_));
    return plans_[0].layout.memory.total();
  }
  const std::vector<int> ranks = mesh().group(rank_, pipeline_->axis);
  for (std::size_t i = 0; i < ranks.size(); ++i)
    plans_.push_back(make_plan(*program_, lowering(), batch_.accumulate, ranks[i],
                               work_of(*program_, *pipeline_, static_cast<std::int64_t>(i))));
  std::int64_t largest = 0;
  std::vector<RankPlan> pairs;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    pairs.push_back({ranks[i], &plans_[i]});
    largest = std::max(largest, plans_[i].layout.memory.total());
  }
  check_ranks(*program_, pairs);
  return largest;
}

std::string Assembly::fingerprint() const {
  std::string all;
  for (const Plan& plan : plans_) all += prun::fingerprint(*program_, plan);
  return all;
}

// Of all axes that a strategy splits the batch over.
std::int64_t Assembly::data_ranks() const {
  const Mesh mesh = mesh_of(recipe_);
  std::int64_t ranks = 1;
  for (const RecipeSection& section : recipe_.strategies()) {
    const auto& traits = plugins_.note("strategy", section.plugin()).traits;
    const auto splits = traits.find("splits");
    if (splits == traits.end() || !names(splits->second, "batch") || !section.has("axis")) continue;
    if (const std::int32_t axis = mesh.find(section.text("axis")); axis >= 0)
      ranks *= mesh.extent(static_cast<std::size_t>(axis));
  }
  return ranks;
}

// The plan is exact, so what does not fit is known now. Where the program leaves it to the planner what is
// computed again in backward, each try starts from a fresh program: strategies after that see the choice.
void Assembly::make_fitting_plan() {
  const auto plan_bytes = [&](const RecomputeChoice& choice) {
    write_program(choice);
    return make_plans();
  };
  const std::int64_t needed = plan_bytes({});
  state_process_bytes();
  const std::int64_t limit = memory_limit();
  if (needed <= limit) return;
  std::int64_t least = needed;
  if (chooses_recompute(*program_)) {
    const std::vector<RecomputeChoice> choices = recompute_choices(*program_);
    for (std::size_t i = 1; i < choices.size() && least > limit; ++i) least = plan_bytes(choices[i]);
    if (least <= limit) return;
  }
  refuse_memory(needed, least, limit);
}

// Of each stage, and everywhere the same: ranks must agree on what fits.
void Assembly::state_process_bytes() {
  const std::vector<int> ranks = pipeline_ ? mesh().group(0, pipeline_->axis) : std::vector<int>{0};
  for (const int rank : ranks) process_bytes_.push_back(process_need(*this, plugins_, rank));
}

// What the recipe says is the plan's alone. Where it says nothing, a device in host memory shares that with
// the process.
std::int64_t Assembly::memory_limit() const {
  const std::int64_t all = device_info_.memory_bytes;
  const std::int64_t process = *std::max_element(process_bytes_.begin(), process_bytes_.end());
  return recipe_.section("device").bytes("memory").value_or(device_info_.host_memory ? all - process : all);
}

// `least`: with full recompute, where the planner may choose it.
void Assembly::refuse_memory(std::int64_t needed, std::int64_t least, std::int64_t limit) const {
  const auto size = [](std::int64_t bytes) { return size_text(static_cast<double>(bytes)); };
  const std::string full = least == needed ? "" : detail::concat(", ", size(least), " with full recompute");
  Diagnostics problems;
  problems.add(recipe_.problem(
      "device.memory", detail::concat("the plan needs ", size(needed), full, ", ", size(limit),
                                      " may be used; a smaller batch.micro, model.seq or model needs less")));
  problems.throw_if_any();
}

// Each value is in its range by now; what is left is what several of them mean together.
void Assembly::check_combinations() const {
  Diagnostics problems;
  const Precision precision = precision_of(recipe_);
  if (size_of(precision.state) < size_of(precision.compute))
    problems.add(recipe_.problem(
        "precision.state", "precision.state is narrower than precision.compute; state = \"fp64\" fits"));
  check_strategies(problems);
  check_mesh(problems);
  check_batch(problems);
  problems.throw_if_any();
}

void Assembly::check_batch(Diagnostics& problems) const {
  const std::int64_t global = recipe_.integer("batch.global"), ranks = data_ranks(),
                     at_once = recipe_.integer("batch.micro") * ranks;
  if (global % at_once == 0 || recipe_.flag("batch.pad")) return;
  const std::int64_t below = global / at_once * at_once, above = below + at_once;
  const std::string times = ranks > 1 ? detail::concat(" x ", ranks, " data-parallel ranks = ", at_once) : "";
  problems.add(recipe_.problem(
      "batch.global",
      detail::concat("batch.global = ", global,
                     " is not a multiple of batch.micro = ", recipe_.integer("batch.micro"), times,
                     "; the nearest that are: ", below > 0 ? detail::concat(below, " and ") : "", above,
                     "; or set batch.pad = true")));
}

// An axis that nobody uses would only do the same work several times.
void Assembly::check_mesh(Diagnostics& problems) const {
  const Mesh mesh = mesh_of(recipe_);
  const std::vector<RecipeSection> strategies = recipe_.strategies();
  std::vector<std::string> known;
  for (const Axis& axis : mesh.axes()) {
    known.push_back(axis.name);
    const bool used = std::any_of(strategies.begin(), strategies.end(), [&](const RecipeSection& section) {
      return section.has("axis") && section.text("axis") == axis.name;
    });
    if (!used && axis.extent > 1)
      problems.add(recipe_.problem(
          "mesh." + axis.name,
          detail::concat("no strategy uses the axis '", axis.name,
                         "'; add one, such as [[strategy]] plugin = \"data\", axis = \"", axis.name, "\"")));
  }
  for (const RecipeSection& section : strategies)
    if (section.has("axis") && mesh.find(section.text("axis")) < 0)
      problems.add(
          recipe_.problem(section.path() + ".axis",
                          detail::concat("the mesh has no axis '", section.text("axis"), "'",
                                         did_you_mean(section.text("axis"), known), "; add it to [mesh]")));
}

void Assembly::check_strategies(Diagnostics& problems) const {
  for (const RecipeSection& section : recipe_.strategies()) {
    const auto& traits = plugins_.note("strategy", section.plugin()).traits;
    const auto phase = traits.find("phase");
    if (phase == traits.end() || std::find(phases.begin(), phases.end(), phase->second) == phases.end())
      problems.add(recipe_.problem(
          section.path() + ".plugin",
          detail::concat("strategy '", section.plugin(), "' does not say in which phase it works")));
    const auto conflicts = traits.find("conflicts");
    for (const RecipeSection& other : recipe_.strategies())
      if (conflicts != traits.end() && any_matches(conflicts->second, other.plugin()))
        problems.add(recipe_.problem(
            section.path() + ".plugin",
            detail::concat("strategy '", section.plugin(), "' does not go with '", other.plugin(), "'")));
  }
}

void Assembly::load_ops() {
  registry_ = std::make_shared<OpRegistry>();
  for (const std::string& name : recipe_.texts("plugins.ops")) {
    OptionsApi no_options{};
    op_plugins_.push_back(plugins_.create<OpPluginInterface>("op", name, no_options));
    Array<OpDef> ops;
    raise(op_plugins_.back()->ops(&ops));
    for (const OpDef& op : ops) registry_->add(op, name);
  }
}

void Assembly::write_program(const RecomputeChoice& choice) {
  const ModelContext context{batch_.micro * batch_.ranks, batch_.seq};
  program_ = std::make_unique<Program>(registry_, precision_of(recipe_), context);
  program_->set_mesh(mesh_of(recipe_));
  program_->set_planned_recompute(choice);
  const auto model = plugins_.create<ModelInterface>("model", recipe_.section("model"));
  raise(model->build(context, &program_api(), program_.get()));
  if (program_->segment_count() < 2) throw_error(ErrorCode::bad_input, "the model has no segment");
  apply_groups();
  apply_strategies("model");
  verify(*program_);
  add_backward(*program_);
  optimizer_ = plugins_.create<OptimizerInterface>("optimizer", recipe_.section("optimizer"));
  add_update(*program_, *optimizer_);
  add_step(*program_, {recipe_.number("optimizer.clip")});
  for (const std::string_view phase : phases) {
    if (phase != "model") apply_strategies(phase);
    if (phase == "partition") {
      pipeline_ = lay_out_pipeline(*program_, plugins_, *optimizer_, batch_.accumulate);
      place_on_mesh(*program_);
      check_rows();
      if (pipeline_) sum_over_stages(*program_, pipeline_->axis);
    }
    if (phase == "state") pack_parts();
  }
  verify(*program_);
}

// The traits are known before the program, and the batch is counted by them.
void Assembly::check_rows() const {
  const std::int64_t rows = program_->local_dims(program_->inputs().front()).front().extent;
  if (rows != batch_.micro)
    throw_error(ErrorCode::bad_input, "batch.micro is ", batch_.micro,
                ", and a rank's part of a microbatch would be ", rows,
                "; a strategy that splits the batch over its axis says so in its traits (splits=batch), and "
                "stands in front of others that split something over the same axis");
}

void Assembly::pack_parts() {
  if (pipeline_) check_parts(*program_, *pipeline_);
  for (const Program::Parts& parts : program_->parts()) {
    const std::string& name = recipe_.section("optimizer").plugin();
    if (!plugins_.note("optimizer", name).traits.count("elementwise"))
      throw_error(
          ErrorCode::unsupported, "optimizer '", name,
          "' does not say that it treats elements alike (trait elementwise), so its state cannot be kept in "
          "parts; leave strategy zero out or choose adamw or sgd");
    pack_state(*program_, *optimizer_, parts.axis, parts.kept);
  }
}

// The first group whose pattern matches a parameter's name ("block.qkv.weight") decides.
void Assembly::apply_groups() {
  const std::vector<RecipeSection> groups = recipe_.sections("optimizer.group");
  std::vector<bool> used(groups.size(), false);
  for (Id id : program_->parameters()) {
    Value& value = program_->value(id);
    const std::string name = program_->segment(value.segment).name + "." + value.name;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!glob_match(groups[g].text("match"), name)) continue;
      used[g] = true;
      value.frozen = groups[g].flag("frozen");
      value.lr_scale = groups[g].number("lr_scale");
      if (groups[g].has("weight_decay")) {
        value.weight_decay = groups[g].number("weight_decay");
        value.decay = value.weight_decay > 0;
      }
      break;
    }
  }
  Diagnostics problems;
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (!used[g])
      problems.add(recipe_.problem(groups[g].path() + ".match",
                                   "no parameter's name matches '" + groups[g].text("match") + "'"));
  problems.throw_if_any();
}

void Assembly::apply_strategies(std::string_view phase) {
  for (const RecipeSection& section : recipe_.strategies()) {
    if (plugins_.note("strategy", section.plugin()).traits.at("phase") != phase) continue;
    const auto strategy = plugins_.create<StrategyInterface>("strategy", section);
    const Status status = strategy->apply(&program_api(), program_.get());
    if (!status.ok())
      throw_error(status.code, "strategy '", section.plugin(), "' (", phase, "): ", status.message);
  }
}

Lowering Assembly::lowering() const {
  Lowering lowering;
  lowering.threads = device_info_.threads;
  lowering.device = device_info_.name.view();
  lowering.kernel = [this](std::string_view op) -> const KernelDef* {
    if (const KernelDef* own = device_->kernel(op)) return own;
    for (const auto& plugin : op_plugins_) {
      Array<DeviceKernel> kernels;
      raise(plugin->kernels(&kernels));
      for (const DeviceKernel& kernel : kernels)
        if (kernel.device == device_info_.kind.view() && kernel.kernel.op == op) return &kernel.kernel;
    }
    return nullptr;
  };
  return lowering;
}

std::int64_t Assembly::parameters() const {
  std::int64_t count = 0;
  for (Id id : program_->parameters()) {
    const Value& value = program_->value(id);
    if (value.copy_of == none) count += value.elements() * program_->segment(value.segment).repeat;
  }
  return count;
}

std::string Assembly::full_name(Id id, std::int32_t instance) const {
  const Id original = program_->value(id).copy_of;
  const Value& value = program_->value(original == none ? id : original);
  const SegmentData& segment = program_->segment(value.segment);
  const std::string layer =
      segment.repeat > 1 ? std::to_string(plan().instances[static_cast<std::size_t>(instance)].layer) + "."
                         : "";
  return segment.name + "." + layer + value.name;
}

}  // namespace prun
