// Values that strategies add beside those of the program: buffers of flat parameters, to write the
// collectives of sharded state (prun::FlatParameter), and values that are placed as others.
#include <algorithm>

#include "program/step_program.hpp"

namespace prun {

std::vector<AxisPlacement> shards_over(const Program& program, AxisId axis) {
  std::vector<AxisPlacement> placement(program.mesh().size());
  for (const AxisId one : axes_of(axis)) placement[one] = AxisPlacement::sharded("packed");
  return placement;
}

namespace {

void check_is_flat(const Program& program, Id id) {
  const Value& value = program.value(id);
  if (value.bucket < 0 || value.dims.back().name != "packed" || value.block > 1)
    throw_error(ErrorCode::bad_input, "'", value.name, "' is no buffer of a flat parameter");
}

// Says whether the strategy at work has declared codes of parameters.
bool makes_codes(const Program& program) {
  const GatheredCodes& codes = program.requests().gathered_codes;
  return !codes.of.empty() && codes.asked_by == program.writer();
}

void check_asked(const Program& program, bool shown) {
  if (!shown)
    throw_error(ErrorCode::bad_input,
                "there are no flat parameters; ask for shards in phase state (shard_state), and write their "
                "collectives in phase collectives");
  if (const std::string& by = program.requests().shards->asked_by;
      by != program.writer() && !makes_codes(program))
    throw_error(ErrorCode::bad_input, "flat parameters are those of [", by,
                "], which asked for shards and writes their collectives; leave that to one strategy");
}

}  // namespace

Array<FlatParameter> Program::shown_flat_parameters() const {
  if (!flat_parameters_.shown && makes_codes(*this)) return {};
  check_asked(*this, flat_parameters_.shown);
  return {flat_parameters_.list.data(), flat_parameters_.list.size()};
}

Id Program::add_flat_buffer(const FlatBuffer& described) {
  check_asked(*this, flat_parameters_.shown);
  check_is_flat(*this, described.like);
  Value buffer = value(described.like);
  buffer.name = detail::concat("bucket.", buffer.bucket, ".", described.name.view());
  for (const Id id : segment(buffer.segment).values)
    if (value(id).name == buffer.name)
      throw_error(ErrorCode::bad_input, "there is a buffer '", buffer.name, "' already; name it otherwise");
  buffer.role = described.lifetime == BufferLifetime::run ? Role::fetched : Role::activation;
  buffer.dtype = described.dtype;
  buffer.view.reset();
  buffer.lifetime.reset();
  if (described.lifetime == BufferLifetime::run) buffer.lifetime = ValueLifetime::persistent;
  if (described.lifetime == BufferLifetime::use) buffer.lifetime = ValueLifetime::just_in_time;
  if (described.ranks.number >= 0) {
    const auto ranks = static_cast<AxisId>(described.ranks.number);
    if (!mesh_.has(ranks)) throw_error(ErrorCode::bad_input, "the mesh has no axis ", described.ranks.number);
    buffer.placement = shards_over(*this, ranks);
  }
  if (described.replicated) {
    buffer.dims = {{"packed", 1}};
    buffer.placement.assign(mesh_.size(), AxisPlacement::replicated());
  }
  std::int64_t rows = 1;
  for (std::size_t d = 0; d + 1 < buffer.dims.size(); ++d) rows *= buffer.dims[d].extent;
  if (described.elements <= 0 || described.elements % rows != 0)
    throw_error(ErrorCode::bad_input, "buffer '", buffer.name, "' of ", described.elements,
                " elements cannot have ", rows, " equal shards");
  buffer.dims.back().extent = described.elements / rows;
  return add_value(std::move(buffer));
}

void Program::lie_within(Id shard, Id whole, AxisInfo ranks) {
  check_asked(*this, flat_parameters_.shown);
  for (const Id id : {shard, whole}) check_is_flat(*this, id);
  Value& part = value(shard);
  const Value& all = value(whole);
  const auto refuse = [&](const char* why) {
    throw_error(ErrorCode::bad_input, "'", part.name, "' cannot lie within '", all.name, "': ", why);
  };
  const auto axis = static_cast<AxisId>(ranks.number);
  if (ranks.number < 0 || !mesh_.has(axis)) refuse("the mesh has no such ranks");
  if (part.bucket != all.bucket || part.dtype != all.dtype)
    refuse("they are of two flat parameters or types");
  if (part.view || part.role == Role::state) refuse("it lies somewhere already");
  if (!all.lifetime || all.view) refuse("that has no memory of its own that outlives a function");
  std::vector<AxisPlacement> lies = part.placement;
  for (const AxisId one : axes_of(axis)) {
    if (!part.on(one).is_sharded()) refuse("ranks do not have shards of it over all of these axes");
    lies[one] = AxisPlacement::replicated();
  }
  if (lies != all.placement || local_bytes(shard) * mesh_.extent(axis) != local_bytes(whole))
    refuse("it is not what a rank has of that over these axes");
  part.lifetime.reset();
  part.view = {whole, 0, axis};
}

Id Program::add_beside(const AddedValue& described) {
  Value added;
  added.name = described.name.view();
  const Value& like = value(described.like);
  const auto refuse = [&](const auto&... why) {
    throw_error(ErrorCode::bad_input, "cannot add value '", added.name, "' placed as '", like.name,
                "': ", why...);
  };
  if (!placed_) refuse("nothing is placed before phase placed; add it there");
  added.role = described.fetched ? Role::fetched : Role::activation;
  added.dtype = described.dtype;
  added.dims.assign(described.dims.begin(), described.dims.end());
  added.segment = like.segment;
  added.placement = like.placement;
  std::vector<Dim> left = added.dims;
  for (AxisId axis = 0; axis < mesh_.size(); ++axis) {
    const std::int64_t ranks = added.on(axis).is_sharded() ? mesh_.extent(axis) : 1;
    const auto own =
        std::find_if(left.begin(), left.end(), [&](const Dim& d) { return d.name == added.on(axis).dim; });
    if (ranks > 1 && (own == left.end() || own->extent % ranks != 0))
      refuse("ranks have parts of it along dimension '", added.on(axis).dim.view(),
             "', and the new value cannot be cut along that");
    if (ranks > 1) own->extent /= ranks;
  }
  return add_value(std::move(added));
}

void Program::gather_as(Id parameter, const AddedValue& described) {
  GatheredCodes& codes = requests_.gathered_codes;
  const auto refuse = [&](const auto&... why) {
    throw_error(ErrorCode::bad_input, "cannot gather codes of '", value(parameter).name, "': ", why...);
  };
  if (value(parameter).role != Role::parameter) refuse("it is no parameter");
  if (value(parameter).bucket >= 0) refuse("it is in a flat parameter already; declare codes in phase state");
  if (described.dtype != DType::u8 || described.like != parameter)
    refuse("they are no bytes that are placed as it is; take u8, and the parameter as `like`");
  if (!codes.of.empty() && codes.asked_by != writer_)
    refuse("[", codes.asked_by, "] declares codes; leave one out");
  codes.asked_by = writer_;
  if (!codes.of.try_emplace(parameter, none).second) refuse("they are declared already");
  codes.of[parameter] = add_beside(described);
}

}  // namespace prun
