#include "train/loop/samples.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <cmath>

#include "base/random.hpp"
#include "base/thread.hpp"
#include "train/assemble/program_writer.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- samples

// Sets share 2^62 samples by their weights.
constexpr std::uint64_t whole = std::uint64_t{1} << 62;

std::vector<double> weights_of(std::span<const SampleSet> sets) {
  std::vector<double> weights;
  for (const SampleSet& set : sets) weights.push_back(set.weight);
  return weights;
}

// Says whether a value is the tokens or, if a model takes them apart, made of whole numbers that are.
bool are_tokens(const Program& program, Id id) {
  const Value& value = program.value(id);
  if (value.dtype != DType::i32) return false;
  if (value.role == Role::input) return true;
  for (const Id op : program.segment(value.segment).ops(FunctionKind::forward))
    if (program.op(op).operands.back() == id)
      return std::ranges::all_of(program.op(op).operands,
                                 [&](Id operand) { return program.value(operand).dtype == DType::i32; }) &&
             are_tokens(program, program.op(op).operands.front());
  return false;
}

SampleSet open_set(const RecipeSection& section, PluginHost& plugins, std::int64_t seq) {
  SampleSet set;
  set.name = section.path();
  set.data = plugins.create<DataInterface>("data", section);
  set.weight = section.number("weight");
  recipe::in_section(section, [&] { raise(set.data->open(seq, &set.info)); });
  if (set.info.samples < 1)
    throw_error(ErrorCode::bad_input, set.name, ": there is not one sample of ", seq, " tokens");
  set.count = set.info.samples;
  return set;
}

// Checks tokens; the error is shown where the recipe states how many of them the model knows.
void check_tokens(const Recipe& recipe, const SampleSet& set, std::int64_t vocab) {
  if (set.info.vocab <= vocab) return;
  recipe::in_section(recipe.section("model"), [&] {
    throw_error(ErrorCode::bad_input, set.name, ": tokens go up to ", set.info.vocab - 1,
                ", model.vocab = ", vocab, " is too small; set model.vocab to at least ", set.info.vocab);
  });
}

// Keeps the requested part of a set. A share above 0 is one sample at least.
void keep_part(SampleSet& set, double share, DataPart part) {
  const auto held_out = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(set.info.samples)));
  const std::int64_t trained_on = set.info.samples - held_out;
  if (trained_on < 1)
    throw_error(
        ErrorCode::bad_input, "cannot apply data.validation = ", share, " to ", set.name, ": of ",
        set.info.samples,
        " samples none is left to train on; give more data, or validate on another set in [[validation]]");
  set.first = part == DataPart::training ? 0 : trained_on;
  set.count = part == DataPart::training ? trained_on : held_out;
}

void check_validation(const Recipe& recipe) {
  const bool share = recipe.number("data.validation") > 0, set = !recipe.sections("validation").empty();
  if (share && set)
    throw_error(ErrorCode::bad_input,
                "cannot validate both on a share of the data (data.validation) and on [[validation]]; leave "
                "one of them out");
  if (!share && !set)
    throw_error(ErrorCode::bad_input,
                "cannot validate: the recipe names no data for it; set data.validation to a share of the "
                "data, such as 0.01, or name other data in [[validation]]");
}

}  // namespace

std::int64_t SampleOrder::index(std::int64_t number) const {
  const std::int64_t epoch = number / samples_, within = number % samples_;
  if (!shuffle_) return within;
  const std::uint64_t shuffle = static_cast<std::uint64_t>(epoch) ^ static_cast<std::uint64_t>(set_) << 48;
  return static_cast<std::int64_t>(permute(static_cast<std::uint64_t>(within),
                                           static_cast<std::uint64_t>(samples_),
                                           static_cast<std::uint64_t>(seed_), shuffle));
}

Blend::Blend(std::span<const double> weights) : shares_(weights.size() - 1) {
  double left = weights.back();  // weight of a set and of all behind it
  for (std::size_t i = shares_.size(); i-- > 0;) {
    left += weights[i];
    shares_[i] = static_cast<std::uint64_t>(weights[i] / left * static_cast<double>(whole));
  }
}

// Places a sample set by set: of m samples that those before have left, the set takes round(m * share). That
// grows by 0 or 1 as m does, so sample m is its own where it grows, and otherwise one of those that are left.
Blend::Place Blend::place(std::int64_t number) const {
  for (std::size_t set = 0; set < shares_.size(); ++set) {
    const auto taken = [share = shares_[set]](std::int64_t of) {
      __extension__ using Wide = unsigned __int128;
      return static_cast<std::int64_t>((static_cast<Wide>(of) * share + whole / 2) / whole);
    };
    const std::int64_t before = taken(number);
    if (taken(number + 1) > before) return {set, before};
    number -= before;
  }
  return {shares_.size(), number};
}

Samples::Samples(std::vector<SampleSet> sets, bool shuffle, std::int64_t seed, std::int64_t seq,
                 std::int64_t vocab, std::optional<std::int64_t> document_end)
    : sets_(std::move(sets)),
      blend_(weights_of(sets_)),
      seq_(seq),
      vocab_(vocab),
      document_end_(document_end) {
  for (std::size_t i = 0; i < sets_.size(); ++i) orders_.emplace_back(sets_[i].count, shuffle, seed, i);
}

void Samples::read(std::int64_t number, std::span<std::int32_t> tokens,
                   std::span<std::int32_t> targets) const {
  if (!spans_) {
    read_text(blend_.place(number), tokens, targets);
    if (masked_) masked_->apply(number, tokens, targets);
    return;
  }
  std::vector<std::int32_t> text(static_cast<std::size_t>(spans_->text())), unused(text.size());
  read_text(blend_.place(number), text, unused);
  spans_->apply(number, text, tokens, targets);
}

void Samples::read_text(const Blend::Place& place, std::span<std::int32_t> tokens,
                        std::span<std::int32_t> targets) const {
  const SampleSet& set = sets_[place.set];
  const std::int64_t index = set.first + orders_[place.set].index(place.number);
  raise(set.data->read(index, tokens.data(), targets.data()));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool bad_token = tokens[i] < 0 || tokens[i] >= vocab_;
    if (bad_token || targets[i] >= vocab_)
      throw_error(ErrorCode::bad_input, set.name, ": sample ", index, ", position ", i, " holds token ",
                  bad_token ? tokens[i] : targets[i], ", outside of model.vocab = ", vocab_);
    if (tokens[i] == document_end_) targets[i] = -1;
  }
}

void Samples::read_groups(std::int64_t number, std::span<std::int32_t> groups) const {
  const Blend::Place place = blend_.place(number);
  const SampleSet& set = sets_[place.set];
  const auto first = static_cast<std::int32_t>(groups_.first(place.set));
  std::fill(groups.begin(), groups.end(), first);
  if (!groups_.has_roles(place.set)) return;
  std::vector<std::uint8_t> roles(groups.size());
  const std::int64_t index = set.first + orders_[place.set].index(place.number);
  raise(set.data->roles(index, roles.data()));
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (roles[i] >= groups_.roles(place.set))
      throw_error(ErrorCode::bad_input, set.name, ": sample ", index, ", position ", i, " is of role ",
                  roles[i], ", and the data plugin names ", groups_.roles(place.set));
    groups[i] += roles[i];
  }
}

std::int64_t vocabulary(const Program& program) {
  std::int64_t rows = INT32_MAX;
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (Id id : program.segment(segment).ops(FunctionKind::forward)) {
      const Op& op = program.op(id);
      for (std::size_t i = 0; i < op.operands.size(); ++i) {
        const std::int32_t by = op.def->operands[i].rows_by;
        if (by >= 0 && are_tokens(program, op.operands[static_cast<std::size_t>(by)]))
          rows = std::min(rows, program.value(op.operands[i]).dims[0].extent);
      }
    }
  return rows;
}

bool has_validation(const Recipe& recipe) {
  return recipe.number("data.validation") > 0 || !recipe.sections("validation").empty();
}

std::vector<SetSize> sizes_of(const Samples& samples) {
  std::vector<SetSize> sizes;
  for (const SampleSet& set : samples.sets()) sizes.push_back({set.name, set.info.samples, set.info.tokens});
  return sizes;
}

Samples open_data(const Assembly& assembly, PluginHost& plugins, DataPart part) {
  const Recipe& recipe = assembly.recipe();
  if (part == DataPart::validation || has_validation(recipe)) check_validation(recipe);
  const std::int64_t seq = assembly.batch().seq, vocab = vocabulary(assembly.program());
  const bool apart = part == DataPart::validation && !recipe.sections("validation").empty();
  std::vector<RecipeSection> sections = recipe.sections(apart ? "validation" : "data.blend");
  if (!apart) sections.insert(sections.begin(), recipe.section("data"));
  std::vector<SampleSet> sets;
  for (const RecipeSection& section : sections) {
    sets.push_back(open_set(section, plugins, text_of_sample(recipe)));
    check_tokens(recipe, sets.back(), vocab);
    if (!apart) keep_part(sets.back(), recipe.number("data.validation"), part);
  }
  const bool shuffle = part == DataPart::training && recipe.flag("data.shuffle");
  const std::optional<std::int64_t> end = document_end_of(recipe);
  if (end && *end >= vocab)
    throw_error(ErrorCode::bad_input, "data.end_of_text = ", *end, " is outside of model.vocab = ", vocab,
                ", so no document would ever end; name the tokenizer's own");
  Samples samples(std::move(sets), shuffle, recipe.integer("run.seed"), seq, vocab, end);
  if (part == DataPart::training) samples.set_loss_groups(LossGroups::of(recipe, plugins));
  samples.mask(MaskedTokens::of(recipe, vocab));
  samples.cut(CorruptedSpans::of(recipe, vocab));
  return samples;
}

namespace {

// ------------------------------------------------------------------- batches

// Returns null for an input that the program has forgotten, since nothing reads it.
template <class T>
T* staged_at(const PlanMemory& memory, Id id, std::int64_t step, std::int64_t microbatch) {
  return id == none ? nullptr : reinterpret_cast<T*>(memory.staged(id, step, microbatch));
}

}  // namespace

BatchShape batch_shape(const Assembly& assembly, const Program& program) {
  const BatchArithmetic& batch = assembly.batch();
  const StagedValues staged = staged_values(program);
  BatchShape shape;
  shape.rows = batch.micro * batch.ranks;
  shape.first_row = program.starts(staged.targets, assembly.rank())[0];
  shape.micro = batch.micro;
  shape.first_position = program.starts(staged.targets, assembly.rank())[1];
  shape.positions = program.local_dims(staged.targets)[1].extent;
  shape.order = program.requests().sequence_order;
  return shape;
}

std::vector<BatchTarget> batch_targets(const PlanMemory& memory, const StagedValues& staged,
                                       std::int64_t step, std::int64_t microbatches) {
  std::vector<BatchTarget> list;
  for (std::int64_t m = 0; m < microbatches; ++m)
    list.push_back({staged_at<std::int32_t>(memory, staged.tokens, step, m),
                    staged_at<std::int32_t>(memory, staged.targets, step, m),
                    staged_at<std::int64_t>(memory, staged.samples, step, m),
                    staged_at<std::int32_t>(memory, staged.groups, step, m)});
  return list;
}

BatchReader::BatchReader(const Samples& samples, BatchShape shape)
    : samples_(samples),
      shape_(shape),
      sample_tokens_(static_cast<std::size_t>(samples.seq())),
      sample_targets_(sample_tokens_.size()),
      sample_groups_(sample_tokens_.size()),
      thread_(start_thread("the data reader", [this] { run(); })) {}

BatchReader::~BatchReader() {
  stop_ = true;
  asked_.release();
  thread_.join();
}

void BatchReader::start(std::int64_t first, std::int64_t global, std::vector<BatchTarget> targets) {
  first_ = first;
  global_ = global;
  targets_ = std::move(targets);
  asked_.release();
}

std::int64_t BatchReader::finish() {
  answered_.acquire();
  raise(status_);
  return counted_;
}

void BatchReader::run() {
  prctl(PR_SET_NAME, "prun-data");
  for (;;) {
    asked_.acquire();
    if (stop_) return;
    status_ = guard([&] { fill(); });
    answered_.release();
  }
}

void BatchReader::fill() {
  counted_ = 0;
  std::int64_t within = shape_.first_row;  // number of the sample within the step
  for (const BatchTarget& target : targets_) {
    for (std::int64_t row = 0; row < shape_.micro; ++row) {
      if (within + row < global_ && first_ + within + row < shape_.end)
        counted_ += read_sample(first_ + within + row, target, row);
      else
        pad(first_ + within + row, target, row);
    }
    within += shape_.rows;
  }
}

void BatchReader::pad(std::int64_t number, const BatchTarget& target, std::int64_t row) const {
  std::fill_n(target.tokens + row * shape_.positions, shape_.positions, 0);
  std::fill_n(target.targets + row * shape_.positions, shape_.positions, -1);
  if (target.groups) std::fill_n(target.groups + row * shape_.positions, shape_.positions, 0);
  if (target.samples) target.samples[row] = number;
}

void BatchReader::read_groups(std::int64_t number, std::int32_t* groups) {
  samples_.read_groups(number, sample_groups_);
  for (std::int64_t i = 0; i < shape_.positions; ++i)
    groups[i] = sample_groups_[static_cast<std::size_t>(shape_.position(i))];
}

// Returns how many of the rank's targets count.
std::int64_t BatchReader::read_sample(std::int64_t number, const BatchTarget& target, std::int64_t row) {
  samples_.read(number, sample_tokens_, sample_targets_);
  std::int32_t *const tokens = target.tokens + row * shape_.positions, *const targets =
                                                                           target.targets +
                                                                           row * shape_.positions;
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < shape_.positions; ++i) {
    const auto at = static_cast<std::size_t>(shape_.position(i));
    tokens[i] = sample_tokens_[at];
    targets[i] = sample_targets_[at];
    counted += targets[i] >= 0 ? 1 : 0;
  }
  if (target.groups) read_groups(number, target.groups + row * shape_.positions);
  if (target.samples) target.samples[row] = number;
  return counted;
}

}  // namespace prun
