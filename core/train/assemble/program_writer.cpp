#include "train/assemble/program_writer.hpp"

#include "placement/pack.hpp"
#include "placement/placement.hpp"
#include "placement/split_ops.hpp"
#include "plugin/traits.hpp"
#include "program/averaged_optimizer.hpp"
#include "program/fp8_products.hpp"
#include "program/group_losses.hpp"
#include "program/passes.hpp"
#include "program/step.hpp"
#include "program/update_form.hpp"
#include "prun/strategy.hpp"
#include "train/assemble/delays_of.hpp"
#include "train/assemble/loss_groups.hpp"
#include "train/assemble/loss_scale.hpp"
#include "train/assemble/model_program.hpp"
#include "train/assemble/parameter_groups.hpp"
#include "train/assemble/recipe_checks.hpp"
#include "train/assemble/tiers.hpp"

namespace prun {
namespace {

DType dtype_named(const std::string& name) {
  for (DType t : {DType::f64, DType::f32, DType::bf16, DType::f16})
    if (name == name_of(t)) return t;
  throw_error(ErrorCode::internal, "no number format '", name, "'");
}

}  // namespace

ScheduleTraits schedule_traits(const PluginNote& note) {
  const std::string_view delay = trait_of(note, "delay");
  return {trait_of(note, "backward") == "split", delay.empty()       ? Delay::nothing
                                                 : delay == "stages" ? Delay::stages
                                                                     : Delay::one};
}

namespace {

ScheduleAnswer ask_schedule(const Recipe& recipe, PluginHost& plugins, const std::string& name,
                            const ScheduleShape& shape) {
  const ScheduleTraits traits = schedule_traits(plugins.note("schedule", name));
  const auto schedule = plugins.create<ScheduleInterface>("schedule", name, recipe);
  return {read_schedule(*schedule, shape, traits, name), traits.split};
}

// The model's whole numbers.
std::vector<RecipeSize> sizes_of(const Recipe& recipe) {
  std::vector<RecipeSize> sizes;
  const RecipeSection model = recipe.section("model");
  for (const auto& entry : model.entries())
    if (entry.value && std::holds_alternative<std::int64_t>(*entry.value))
      sizes.push_back({entry.path, std::get<std::int64_t>(*entry.value)});
  return sizes;
}

}  // namespace

std::optional<std::int64_t> document_end_of(const Recipe& recipe) {
  if (recipe.text("data.documents") == "joined") return {};
  return recipe.integer("data.end_of_text");
}

namespace {

// Of codes that numbers travel in; 0: they travel as they are.
std::int64_t bits_of(const std::string& format) {
  return format == "int8" || format == "fp8" ? 8 : format == "int4" ? 4 : format == "1bit" ? 1 : 0;
}

}  // namespace

Precision precision_of(const Recipe& recipe) {
  const DType state = dtype_named(recipe.text("precision.state"));
  const auto kept = [&](const char* key, DType otherwise) {
    const std::string& name = recipe.text(key);
    return name == "state" || bits_of(name) > 0 ? otherwise
           : name == "split" || name == "8bit"  ? DType::f32
                                                : dtype_named(name);
  };
  Precision precision;
  precision.compute = dtype_named(recipe.text("precision.compute"));
  precision.master = kept("precision.master", state);
  precision.moments = kept("precision.moments", state);
  precision.gradient = kept("precision.gradient", state);
  precision.reduce = kept("precision.reduce", precision.gradient);
  precision.reduce_bits = bits_of(recipe.text("precision.reduce"));
  precision.gather_bits = bits_of(recipe.text("precision.gather"));
  precision.gather_fp8 = recipe.text("precision.gather") == "fp8";
  precision.split = recipe.text("precision.master") == "split";
  precision.eight_bits = recipe.text("precision.moments") == "8bit";
  return precision;
}

WrittenProgram ProgramWriter::write(const PlannedChoice& choice) {
  if (makes_text(purpose_)) check_makes_text();
  factored_.reset();
  while (!write_over_mesh(choice)) factored_ = program_->requests().factored;
  if (purpose_ == Purpose::training) {
    check_updates(*program_);
    delay_weights(*program_, delays_of(*program_, pipeline_, delay(), recipe_, batch_));
  } else {
    leave_training_out();
  }
  verify(*program_);
  return {std::move(program_), std::move(pipeline_)};
}

bool ProgramWriter::write_over_mesh(const PlannedChoice& choice) {
  write_model(choice);
  ParameterGroups groups(recipe_);
  groups.apply(*program_);
  apply_strategies("model");
  groups.apply(*program_);
  groups.check_used();
  if (factored_ && factored_->weights) {
    if (recipe_.text("precision.moments") == "8bit")
      throw_error(
          ErrorCode::unsupported, "axis '", factored_->axis,
          "' has more ranks than there are groups of heads, whose moments in 8 bits have blocks of the "
          "whole projection; take precision.moments = \"fp32\", or fewer ranks there");
    take_packed_apart(*program_, factored_->within);
  }
  if (!recipe_.text("model.init").empty()) leave_to_base(*program_);
  verify(*program_);
  write_step();
  for (const std::string_view phase : phases) {
    if (phase != "model") apply_strategies(phase);
    if (program_->requests().factored) {
      if (factored_)
        throw_error(ErrorCode::unsupported, "axes '", factored_->axis, "' and '",
                    program_->requests().factored->axis,
                    "' both have more ranks than there are groups of heads; "
                    "let one of them divide these");
      return false;
    }
    if (phase == "partition") lay_out();
    if (phase == "partition" && in_fp8()) multiply_in_fp8(*program_);
    if (phase == "state") pack_parts();
    if (phase == "memory") derive_moves(*program_, gradient_parts(), updates_are_free());
  }
  return true;
}

// Text is made position by position, of which there are too few for blocks.
bool ProgramWriter::in_fp8() const {
  return recipe_.text("precision.products") == "fp8" && !makes_text(purpose_);
}

// As the model plugin knows it: of one rank that has all.
void ProgramWriter::write_model(const PlannedChoice& choice) {
  pipeline_.reset();
  const ModelContext context{batch_.micro * batch_.ranks, batch_.seq};
  program_ = std::make_unique<Program>(registry_, precision_of(recipe_), context);
  const Mesh mesh = mesh_of(recipe_);
  program_->set_mesh(
      factored_ ? mesh.factored(factored_->axis, factored_->parts, factored_->within, !factored_->weights)
                : mesh);
  program_->set_recipe_sizes(sizes_of(recipe_));
  program_->requests().planned_recompute = choice.recompute;
  program_->requests().way_to_fit = choice.way_to_fit;
  program_->requests().known_tiers = known_tiers(recipe_, plugins_);
  const auto model = plugins_.create<ModelInterface>("model", recipe_.section("model"));
  recipe::in_section(recipe_.section("model"),
                     [&] { raise(model->build(context, &program_api(), program_.get())); });
  program_->set_foreign_weights(foreign_weights_of(*model));
  if (program_->segment_count() < 2) throw_error(ErrorCode::bad_input, "the model has no segment");
  if (const std::optional<std::int64_t> end = document_end_of(recipe_)) keep_documents_apart(*program_, *end);
}

// Backward, updates, and what frames them.
void ProgramWriter::write_step() {
  add_backward(*program_);
  optimizers_ = {optimizer_of(recipe_.section("optimizer"))};
  for (const RecipeSection& group : groups_with_optimizers(recipe_))
    optimizers_.push_back(optimizer_of(group));
  check_parts_of_tensors();
  if (loss_groups() > 0) declare_loss_groups(*program_, loss_groups());
  add_update(*program_, optimizers_);
  add_step(*program_, {recipe_.number("optimizer.clip"), scales_loss(recipe_)});
  check_scaled_updates(*program_);
}

std::int64_t ProgramWriter::loss_groups() const {
  return purpose_ == Purpose::training ? LossGroups::of(recipe_, plugins_).count() : 0;
}

// What takes a tensor as a whole would take its parts for tensors.
void ProgramWriter::check_parts_of_tensors() const {
  for (const Id id : program_->parameters()) {
    const Value& parameter = program_->value(id);
    if (!parameter.part || parameter.frozen) continue;
    const NamedOptimizer& optimizer = optimizers_.at(parameter.optimizer);
    if (optimizer.unit != UpdateUnit::element)
      throw_error(
          ErrorCode::unsupported, "axis '", factored_->axis,
          "' has more ranks than there are groups of heads, so '", parameter.part->tensor,
          "' lies in two, and optimizer plugin '", optimizer.name,
          "' does not treat elements alike; let the axis divide the groups, or choose another for it");
  }
}

NamedOptimizer ProgramWriter::optimizer_of(const RecipeSection& section) const {
  const PluginNote& note = plugins_.note("optimizer", section.plugin());
  const std::string_view whole = trait_of(note, "whole");
  const UpdateUnit unit = whole == "matrices"                      ? UpdateUnit::matrix
                          : whole == "tensors"                     ? UpdateUnit::tensor
                          : trait_of(note, "elementwise") == "yes" ? UpdateUnit::element
                                                                   : UpdateUnit::unknown;
  std::shared_ptr<OptimizerInterface> optimizer = plugins_.create<OptimizerInterface>("optimizer", section);
  if (const double decay = recipe_.number("optimizer.average"); decay > 0)
    optimizer = std::make_shared<AveragedOptimizer>(std::move(optimizer), decay);
  return {section.plugin(), unit, std::move(optimizer), trait_of(note, "sums") == "update"};
}

PipelineOrder ProgramWriter::order_of(const Program& program, std::int64_t microbatches) const {
  const PipelineRequest& asked = program.requests().pipeline.value();
  return ask_schedule(recipe_, plugins_, asked.schedule, pipeline_shape(program, asked, microbatches)).order;
}

// One rank alone does as well: it is what all layouts are compared with.
Delay ProgramWriter::delay() const {
  const std::optional<PipelineRequest>& asked = program_->requests().pipeline;
  return asked ? schedule_traits(plugins_.note("schedule", asked->schedule)).delay : Delay::nothing;
}

// Token by token, each from those in front of it; of an encoder and a decoder, whole sequences, since what is
// kept by position is all positions', and theirs are counted apart.
void ProgramWriter::check_makes_text() const {
  const std::string& model = recipe_.section("model").plugin();
  const PluginNote& note = plugins_.note("model", model);
  const std::string_view predicted = trait_of(note, "predicts");
  if (predicted == "masked")
    throw_error(ErrorCode::unsupported, "model '", model,
                "' predicts masked tokens from those on both sides of each, and text is made by models that "
                "predict the next token");
  if (predicted == "spans" && trait_of(note, "inputs").empty())
    throw_error(ErrorCode::unsupported, "model '", model,
                "' has an encoder, and does not say which of its options is how many tokens that sees (trait "
                "inputs); text is made by models that do");
  if (predicted == "spans" && purpose_ == Purpose::generation)
    throw_error(ErrorCode::internal, "an encoder and a decoder position by position");
}

// Over stages and the mesh.
void ProgramWriter::lay_out() {
  const auto ask = [&](const std::string& name, const ScheduleShape& shape) {
    return ask_schedule(recipe_, plugins_, name, shape);
  };
  pipeline_ = lay_out_pipeline(*program_, ask, optimizers_, batch_.accumulate);
  check_order();
  if (purpose_ == Purpose::evaluation || loss_groups() > 0) take_heads_apart(*program_);
  if (loss_groups() > 0) sum_loss_by_group(*program_);
  if (makes_text(purpose_)) add_logits(*program_);
  if (purpose_ == Purpose::generation) step_by_positions(*program_);
  check_sequence_axes(*program_);
  place_on_mesh(*program_);
  check_rows();
  if (pipeline_) sum_over_stages(*program_, pipeline_->axis);
}

// Parameters that ranks hold whole and update in parts come together behind an update. Where averages take
// the places of parts between two programs, they have to come together ahead of their use.
void ProgramWriter::gather_ahead() {
  for (const Bucket& bucket : program_->buckets()) {
    if (bucket.kept.parameters) continue;
    const std::vector<Id> updates = program_->segment(bucket.segment).ops(FunctionKind::update);
    for (const Id id : updates) {
      const std::vector<Id> operands = program_->op(id).operands;
      if (operands == std::vector<Id>{bucket.own_parameters, bucket.all_parameters})
        program_->add_copy(id, FunctionKind::gather, operands, none);
    }
  }
}

void ProgramWriter::leave_training_out() {
  if (purpose_ == Purpose::evaluation && recipe_.flag("eval.average")) gather_ahead();
  verify(*program_);
  const StagedValues staged = staged_values(*program_);
  std::vector<Id> results = {staged.loss_sum, staged.all_counted};
  if (makes_text(purpose_)) results = {staged.logits};
  keep_forward(*program_, results);
}

// The traits are known before the program, and the batch is counted by them.
void ProgramWriter::check_rows() const {
  const std::int64_t rows = program_->local_dims(program_->inputs().front()).front().extent;
  if (rows != batch_.micro)
    throw_error(ErrorCode::bad_input, "batch.micro is ", batch_.micro,
                ", and a rank's part of a microbatch would be ", rows,
                "; a strategy that splits the batch over its axis says so in its traits (splits=batch), and "
                "stands in front of others that split something over the same axis");
}

void ProgramWriter::check_order() const {
  if (pipeline_ && batch_.vertical)
    throw_error(
        ErrorCode::unsupported,
        "batch.order is \"vertical\", which takes all microbatches through a layer before the next one, "
        "and in a pipeline each stage hands on one microbatch after the other; leave one of the two out");
  if (batch_.lanes > 1) check_lanes();
}

void ProgramWriter::check_lanes() const {
  const std::string set = detail::concat("batch.interleave is ", batch_.lanes);
  if (pipeline_)
    throw_error(ErrorCode::unsupported, set,
                ", and the schedule of a pipeline says which microbatch a stage takes next; leave one of the "
                "two out");
  if (batch_.vertical)
    throw_error(ErrorCode::unsupported, set,
                ", and batch.order = \"vertical\" takes all microbatches through a layer one after the "
                "other; leave one of the two out");
  if (batch_.accumulate % batch_.lanes != 0)
    throw_error(ErrorCode::bad_input, set, ", and a step has ", batch_.accumulate,
                batch_.accumulate == 1 ? " microbatch" : " microbatches", " of batch.micro = ", batch_.micro,
                "; choose a number that divides ", batch_.accumulate, ", or a smaller batch.micro");
}

bool ProgramWriter::updates_are_free() const {
  return recipe_.number("optimizer.clip") == 0 && !skips_non_finite(recipe_) && !scales_loss(recipe_);
}

GradientParts ProgramWriter::gradient_parts() const {
  if (purpose_ != Purpose::training || batch_.accumulate == 1) return GradientParts::one;
  return batch_.vertical ? GradientParts::in_a_row : GradientParts::far_apart;
}

// What travels in codes is what ranks keep in parts.
void ProgramWriter::check_codes() const {
  const Precision& precision = program_->precision();
  bool gathers = false;
  for (const PartsRequest& parts : program_->requests().parts) gathers |= parts.kept.parameters;
  if (precision.gather_bits > 0 && !gathers)
    throw_error(
        ErrorCode::unsupported, "precision.gather is \"", recipe_.text("precision.gather"),
        "\", and no strategy keeps parameters in parts, so that none are gathered; add strategy zero with "
        "stage = 3, or leave the key out");
  if (precision.reduce_bits == 1 && !program_->requests().parts.empty())
    throw_error(
        ErrorCode::unsupported,
        "precision.reduce is \"1bit\", with which every rank has all of the optimizer's state and a gradient "
        "of "
        "its own, and a strategy keeps some of that in parts; leave out strategy zero (stage = 0), or choose "
        "\"int8\" or \"int4\"");
  if (precision.reduce_bits == 1) check_sums_in_update();
  if (precision.reduce_bits > 1 && program_->requests().parts.empty())
    throw_error(
        ErrorCode::unsupported, "precision.reduce is \"", recipe_.text("precision.reduce"),
        "\", in which gradients are summed in parts, and no strategy keeps state in parts; add strategy zero "
        "with stage = 1, 2 or 3, or choose a type that numbers are summed in, such as \"bf16\"");
}

void ProgramWriter::check_sums_in_update() const {
  for (const NamedOptimizer& optimizer : optimizers_)
    if (optimizer.sums_in_update) return;
  std::string known;
  for (const PluginNote& note : plugins_.notes_with("optimizer", "sums", "update"))
    known += (known.empty() ? "" : ", ") + note.name;
  throw_error(ErrorCode::unsupported,
              "precision.reduce is \"1bit\", in which ranks sum what an optimizer makes of gradients, and '",
              optimizers_.front().name, "' takes their sum; take an optimizer whose note says sums=update (",
              known, "), or a type that numbers are summed in, such as \"bf16\"");
}

void ProgramWriter::pack_parts() {
  if (purpose_ == Purpose::training) check_codes();
  if (purpose_ == Purpose::training && program_->precision().reduce_bits == 1)
    pack_summands(*program_, optimizers_, batch_.accumulate);
  if (pipeline_) check_parts(*program_, *pipeline_);
  for (const PartsRequest& parts : program_->requests().parts) {
    for (const NamedOptimizer& optimizer : optimizers_)
      if (optimizer.unit == UpdateUnit::unknown)
        throw_error(
            ErrorCode::unsupported, "optimizer plugin '", optimizer.name,
            "' does not say that it treats elements alike (trait elementwise=yes), or updates whole tensors "
            "(trait whole=tensors), so its state cannot be kept in parts; leave out the strategy that keeps "
            "it so, or choose an optimizer that says it");
    const std::optional<RecipeSection> keeper = keeper_of(parts);
    if (keeper) check_parts_axes(recipe_, *keeper);
    pack_state(*program_, optimizers_, parts);
  }
}

// Whose wish they are.
std::optional<RecipeSection> ProgramWriter::keeper_of(const PartsRequest& parts) const {
  std::vector<std::string> names;
  for (const AxisId axis : parts.axes)
    if (const std::string name = program_->mesh().name(axis); name.find('.') == std::string::npos)
      names.push_back(name);
  for (const RecipeSection& section : recipe_.strategies())
    if (trait_of(plugins_.note("strategy", section.plugin()), "phase") == "state" &&
        axes_named(section) == names)
      return section;
  return {};
}

void ProgramWriter::apply_strategies(std::string_view phase) {
  for (const RecipeSection& section : recipe_.strategies()) {
    const PluginNote& note = plugins_.note("strategy", section.plugin());
    if (trait_of(note, "phase") != phase) continue;
    if (trait_of(note, "only") == "training" && purpose_ != Purpose::training) continue;
    program_->set_writer(section.path());
    const auto strategy = plugins_.create<StrategyInterface>("strategy", section);
    recipe::in_section(section, [&] { raise(strategy->apply(&program_api(), program_.get())); });
  }
  program_->set_writer("");
}

}  // namespace prun
