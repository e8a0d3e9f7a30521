#include "train/loop/validation.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/floats.hpp"
#include "execute/plan_memory.hpp"
#include "program/passes.hpp"
#include "prun/split_master.hpp"
#include "train/checkpoint/saved_state.hpp"

namespace prun {
namespace {

constexpr std::int64_t most = std::int64_t{1} << 17;  // number of elements at a time
constexpr std::int64_t widest = sizeof(double);
constexpr std::size_t buffer_count = 3;

template <class T>
std::span<T> as(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// Says whether it is the state that a strategy has asked for.
bool is_asked_for(const Program& program, Id state) {
  return program.value(state).name.ends_with("." + program.requests().optimizer_state->name);
}

// Rounds as updates round a master copy.
void round_to(DType type, std::span<const float> numbers, std::span<std::byte> to) {
  if (type != DType::bf16) return store_floats(type, numbers, to.data());
  std::transform(numbers.begin(), numbers.end(), as<std::uint16_t>(to).begin(), rounded_half);
}

}  // namespace

StandIns::StandIns(const Assembly& assembly, const PlanMemory& memory, Of of)
    : assembly_(assembly),
      memory_(memory),
      buffers_(*assembly.devices().front(), static_cast<std::int64_t>(buffer_count) * most * widest) {
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    of == Of::optimizer_states ? add_optimizer_state(id, instance) : add_stand_in(id, instance);
  });
}

// Frozen parameters have no state and stay what they are.
void StandIns::add_optimizer_state(Id id, std::int32_t instance) {
  const Program& program = assembly_.program();
  for (const LocalPart& state : local_states(program, assembly_.rank(), id)) {
    if (state.count > 0 && is_asked_for(program, state.value)) add(id, instance, state);
  }
}

void StandIns::add_stand_in(Id id, std::int32_t instance) {
  const Program& program = assembly_.program();
  const Id state = program.value(id).stand_in;
  if (state != none)
    add(id, instance, {state, program.value(state).dtype, 0, 0, program.local_elements(state)});
}

void StandIns::add(Id id, std::int32_t instance, const LocalPart& state) {
  const Program& program = assembly_.program();
  const LocalPart parameter = local_part(program, assembly_.rank(), id, Kept::parameter),
                  master = local_part(program, assembly_.rank(), id, Kept::master);
  PRUN_CHECK(parameter.first <= state.first && state.first + state.count <= parameter.first + parameter.count,
             "numbers of what rank ", assembly_.rank(), " has not of '", program.value(id).name, "'");
  Tensor tensor{instance,
                state.count,
                {parameter.value, parameter.type, parameter.at + state.first - parameter.first},
                {},
                {state.value, state.type, state.at}};
  if (master.count > 0) tensor.master = {master.value, master.type, master.at + state.first - master.first};
  check(tensor, id);
  tensors_.push_back(tensor);
}

void StandIns::check(const Tensor& tensor, Id parameter) const {
  const DType other = tensor.other.type;
  const bool halves = tensor.master.value != none && tensor.master.type == DType::u16;
  const bool comes_back = halves                        ? other == DType::f32
                          : tensor.master.value == none ? other == tensor.parameter.type
                                                        : true;
  if (!comes_back)
    throw_error(
        ErrorCode::unsupported, "cannot evaluate ", assembly_.program().value(tensor.other.value).name,
        " in the place of '", assembly_.program().value(parameter).name, "': that is stored only in ",
        name_of(tensor.parameter.type), ", not in ", name_of(other),
        ", and could not be restored exactly; set precision.master = \"fp32\" or \"split\", or evaluate "
        "weights alone, or leave eval.every out and run prun eval on checkpoints");
}

void StandIns::each_piece(void (StandIns::*body)(const Piece&)) {
  for (const Tensor& tensor : tensors_)
    for (std::int64_t first = 0; first < tensor.count; first += most)
      (this->*body)({tensor, first, std::min(most, tensor.count - first)});
}

// Puts a piece in place. With a whole master copy, the parameter's value follows from it; otherwise both
// change places.
void StandIns::put_piece_in_place(const Piece& piece) {
  const Tensor& tensor = piece.tensor;
  if (tensor.master.value == none) return change_places(piece);
  if (tensor.master.type == DType::u16) return change_places_with_halves(piece);
  round_from(piece, tensor.other);
}

void StandIns::put_piece_back(const Piece& piece) {
  const Tensor& tensor = piece.tensor;
  if (tensor.master.value == none) return change_places(piece);
  if (tensor.master.type == DType::u16) return change_places_with_halves(piece);
  round_from(piece, tensor.master);
}

void StandIns::change_places(const Piece& piece) {
  const auto parameter = read(piece, piece.tensor.parameter, 0), other = read(piece, piece.tensor.other, 1);
  write(piece, piece.tensor.parameter, other);
  write(piece, piece.tensor.other, parameter);
}

// Exchanges split floats: the two halves of a float are bits of it, all of them.
void StandIns::change_places_with_halves(const Piece& piece) {
  const auto rounded = as<std::uint16_t>(read(piece, piece.tensor.parameter, 0)),
             low = as<std::uint16_t>(read(piece, piece.tensor.master, 1));
  const auto other = as<float>(read(piece, piece.tensor.other, 2));
  for (std::size_t i = 0; i < other.size(); ++i) {
    const float weight = joined_halves(rounded[i], low[i]);
    rounded[i] = rounded_half(other[i]);
    low[i] = low_half(other[i]);
    other[i] = weight;
  }
  write(piece, piece.tensor.parameter, std::as_bytes(rounded));
  write(piece, piece.tensor.master, std::as_bytes(low));
  write(piece, piece.tensor.other, std::as_bytes(other));
}

void StandIns::round_from(const Piece& piece, const Place& numbers) {
  const std::span<std::byte> kept = read(piece, numbers, 0);
  std::span<float> floats = as<float>(buffer(1, piece.count * size_of(DType::f32)));
  if (numbers.type == DType::f64)
    std::transform(as<double>(kept).begin(), as<double>(kept).end(), floats.begin(),
                   [](double number) { return static_cast<float>(number); });
  else
    load_floats(numbers.type, kept, floats);
  const std::span<std::byte> rounded = buffer(2, piece.count * size_of(piece.tensor.parameter.type));
  round_to(piece.tensor.parameter.type, floats, rounded);
  write(piece, piece.tensor.parameter, rounded);
}

std::span<std::byte> StandIns::buffer(std::size_t number, std::int64_t bytes) {
  return buffers_.bytes().subspan(number * static_cast<std::size_t>(most * widest),
                                  static_cast<std::size_t>(bytes));
}

std::span<std::byte> StandIns::read(const Piece& piece, const Place& from, std::size_t to) {
  const std::span<std::byte> bytes = buffer(to, piece.count * size_of(from.type));
  memory_.read(from.value, piece.tensor.instance, (from.at + piece.first) * size_of(from.type), bytes);
  return bytes;
}

void StandIns::write(const Piece& piece, const Place& to, std::span<const std::byte> from) {
  memory_.write(to.value, piece.tensor.instance, (to.at + piece.first) * size_of(to.type), from);
}

namespace {

bool has_stand_ins(const Program& program) {
  const std::vector<Id> all = program.parameters();
  return std::any_of(all.begin(), all.end(), [&](Id id) { return program.value(id).stand_in != none; });
}

}  // namespace

Validation::Validation(const ForwardParts& parts, Samples samples)
    : recipe_(parts.assembly.recipe()), evaluator_(parts, std::move(samples)) {
  const std::optional<StateRequest>& state = parts.assembly.program().requests().optimizer_state;
  if (state && state->evaluated) {
    state_ = state->name;
    states_.emplace(parts.assembly, *parts.base_program, StandIns::Of::optimizer_states);
  }
  if (has_stand_ins(parts.assembly.program()))
    stand_ins_.emplace(parts.assembly, *parts.base_program, StandIns::Of::stand_ins);
}

// The state goes first: where the program gathers parameters, it leaves those behind that it has read last.
// Before the first update it is zero.
Evaluation Validation::run(std::int64_t updates) {
  const std::int64_t batches = recipe_.integer("eval.batches");
  Evaluation evaluation;
  if (states_ && updates > 0) {
    states_->put_in_place();
    evaluation.sets.emplace_back(state_, evaluator_.run(batches));
    states_->put_back();
  }
  if (stand_ins_) stand_ins_->put_in_place();
  evaluation.whole = evaluator_.run(batches);
  if (recipe_.flag("eval.by_set"))
    for (auto& set : evaluator_.run_by_set(batches)) evaluation.sets.push_back(std::move(set));
  if (stand_ins_) stand_ins_->put_back();
  return evaluation;
}

}  // namespace prun
