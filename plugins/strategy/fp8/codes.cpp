// Puts codes of squares in the place of factors of products in fp8 (prun/fp8_squares.hpp), where the rule of
// the op that multiplies them takes codes: of what backward reads of forward, of weights for a step, and of
// weights that ranks gather. The numbers that a step computes stay the same to the last bit.
#include "passes.hpp"

namespace prun::fp8 {

// ------------------------------------------------------------------- places

Places::Places(ProgramRef program) : program_(program) {
  const ProgramView view = program.view();
  if (view.values.size == 0) return;
  for (const Lies& lies : view.values[0].lies) axes_.emplace_back(lies.axis.view(), 1);
  for (auto& [name, extent] : axes_) extent = program.axis(name).extent;
}

std::vector<Lies> Places::of(Id value) const {
  std::vector<Lies> all;
  for (const auto& axis : axes_) all.push_back(program_.placement(value, axis.first));
  return all;
}

std::int64_t Places::extent(std::string_view axis) const {
  for (const auto& [name, extent] : axes_)
    if (name == axis) return extent;
  return 1;
}

OperandShape Places::local_shape(Id value) const {
  OperandShape part = shape_of(program_.value(value));
  for (const Lies& lies : of(value))
    for (int d = 0; d < part.rank; ++d)
      if (lies.kind == PlacementKind::sharded && part.dims[d].name == lies.dim)
        part.dims[d].extent /= extent(lies.axis.view());
  return part;
}

bool Places::lies_as(Id value, const OperandShape& codes) const {
  const std::vector<Lies> all = of(value);
  return std::all_of(all.begin(), all.end(), [&](const Lies& lies) {
    if (lies.kind == PlacementKind::partial || lies.kind == PlacementKind::maximum) return false;
    return lies.kind != PlacementKind::sharded || has_dim(codes, lies.dim);
  });
}

bool Places::are_cut_alike(Id factor, const OperandShape& codes, int in_dims, bool by_rows) const {
  const OperandShape of_part = fp8_squares_of(local_shape(factor), in_dims, by_rows);
  const std::vector<Lies> all = of(factor);
  for (int d = 0; d < codes.rank; ++d) {
    std::int64_t own = codes.dims[d].extent;
    for (const Lies& lies : all)
      if (lies.kind == PlacementKind::sharded && lies.dim == codes.dims[d].name)
        own /= extent(lies.axis.view());
    if (of_part.rank != codes.rank || of_part.dims[d].extent != own) return false;
  }
  return true;
}

// ------------------------------------------------------------------- factor codes

namespace {

// Returns the attributes of an op that reads codes.
std::vector<AttrValue> attrs_with_codes(ProgramRef program, Id op) {
  std::vector<AttrValue> attrs;
  const OpDef& def = *program.op(op).def;
  for (std::uint64_t i = 0; i < def.attr_count; ++i) {
    const char* const name = def.attrs[i].name;
    attrs.push_back({name, std::string_view(name) == "fp8" ? 2.0 : program.attr(op, name)});
  }
  return attrs;
}

// Has an op read codes as that operand.
void read_codes(ProgramRef program, Id id, std::size_t operand, Id codes) {
  const OpInfo op = program.op(id);
  std::vector<Id> operands(op.operands.begin(), op.operands.end());
  operands[operand] = codes;
  const std::vector<AttrValue> attrs = attrs_with_codes(program, id);
  const std::string kind(op.kind.view());
  raise(program.api().replace_op(program.handle(), id, kind, {operands.data(), operands.size()},
                                 {attrs.data(), attrs.size()}));
}

}  // namespace

bool takes_codes(ProgramRef program, Id id, std::size_t operand, const OperandShape& codes) {
  const OpInfo op = program.op(id);
  if (!codes.present || !has_attr(op, "in_dims") || !multiplies_everywhere(program, id) ||
      program.attr(id, "fp8") != 1)
    return false;
  if (operand >= op.operands.size || access(op, operand) != Access::read ||
      std::count(op.operands.begin(), op.operands.end(), op.operands[operand]) != 1)
    return false;
  OpShape shape = program.shape(id);
  std::vector<Attr> attrs(shape.attrs, shape.attrs + op.def->attr_count);
  for (std::size_t i = 0; i < attrs.size(); ++i)
    if (std::string_view(op.def->attrs[i].name) == "fp8") attrs[i].i = 2;
  shape.attrs = attrs.data();
  shape.operand[operand] = codes;
  return op.def->rule(&shape).ok();
}

Id add_codes(ProgramRef program, Id of, const OperandShape& codes, const char* suffix, bool fetched) {
  const std::string name = std::string(program.value(of).name.view()) + suffix;
  return program.add_value({.name = name,
                            .like = of,
                            .dtype = codes.dtype,
                            .dims = {codes.dims, static_cast<std::size_t>(codes.rank)},
                            .fetched = fetched});
}

namespace {

// ------------------------------------------------------------------- saved codes

// Keeps the values of one segment in codes.
class SavedCodes {
 public:
  SavedCodes(const Segment& segment, const Places& places)
      : segment_(segment), program_(segment.program()), places_(places) {}

  void run() {
    for (const Id op : segment_.operations(FunctionKind::forward)) {
      const OpInfo info = program_.op(op);
      const std::vector<Id> operands(info.operands.begin(), info.operands.end());
      for (std::size_t i = 0; i < operands.size(); ++i)
        if (operands[i] != none && access(info, i) == Access::write) keep(operands[i]);
    }
  }

 private:
  void keep(Id id) {
    const ValueInfo value = program_.value(id);
    if (value.role != Role::activation || program_.used_elsewhere(id) || id == segment_.info().outgoing)
      return;
    const std::vector<Id> readers = readers_in_backward(id);
    if (readers.empty() || !has_attr(program_.op(readers.front()), "in_dims")) return;
    const double in_dims = program_.attr(readers.front(), "in_dims");
    const OperandShape codes = fp8_squares_of(shape_of(value), static_cast<int>(in_dims));
    for (const Id reader : readers)
      if (program_.op(reader).operands[0] != id || !takes_codes(program_, reader, 0, codes) ||
          program_.attr(reader, "in_dims") != in_dims)
        return;
    if (!places_.lies_as(id, codes)) return;
    const Id kept = add_codes(program_, id, codes, ".codes");
    segment_.insert_on(FunctionKind::forward, behind_first_reader(id), "encode_fp8_squares", {id, kept},
                       {{"in_dims", in_dims}});
    for (const Id reader : readers) read_codes(program_, reader, 0, kept);
  }

  std::vector<Id> readers_in_backward(Id value) const {
    std::vector<Id> readers;
    for (const FunctionKind kind : backward_functions)
      for (const Id op : segment_.operations(kind)) {
        const Array<Id> all = program_.op(op).operands;
        if (std::find(all.begin(), all.end(), value) != all.end()) readers.push_back(op);
      }
    return readers;
  }

  Id behind_first_reader(Id value) const {
    for (const Id op : segment_.operations(FunctionKind::forward))
      if (reads(program_.op(op), value)) return behind(segment_, FunctionKind::forward, op);
    return none;
  }

  const Segment segment_;
  const ProgramRef program_;
  const Places& places_;
};

// ------------------------------------------------------------------- gathered codes

constexpr bool orders[] = {true, false};  // by rows, and by columns

// Names an op of a pass that reads a value.
struct Reader {
  Id op = none;
  std::size_t operand = 0;
};

std::vector<Reader> readers_of(ProgramRef program, Id value) {
  std::vector<Reader> readers;
  for (const Segment& segment : program.segments())
    for (const FunctionKind function : microbatch_functions)
      for (const Id op : segment.operations(function)) {
        const Array<Id> operands = program.op(op).operands;
        for (std::size_t i = 0; i < operands.size; ++i)
          if (operands[i] == value) readers.push_back({op, i});
      }
  return readers;
}

int in_dims_of(ProgramRef program, const Reader& reader) {
  return static_cast<int>(program.attr(reader.op, "in_dims"));
}

OperandShape squares_of(ProgramRef program, Id weight, int in_dims, bool by_rows) {
  return fp8_squares_of(shape_of(program.value(weight)), in_dims, by_rows);
}

// Returns the codes that an op takes of a weight of its own segment; they are absent if it takes none.
OperandShape taken_by(ProgramRef program, const Reader& reader, Id weight, bool by_rows) {
  const OpInfo op = program.op(reader.op);
  if (program.value(weight).segment != op.segment || !has_attr(op, "in_dims")) return {};
  const OperandShape codes = squares_of(program, weight, in_dims_of(program, reader), by_rows);
  return takes_codes(program, reader.op, reader.operand, codes) ? codes : OperandShape{};
}

bool takes_any(ProgramRef program, const Reader& reader, Id weight) {
  return taken_by(program, reader, weight, true).present || taken_by(program, reader, weight, false).present;
}

// Says whether ranks can have codes of their parts of a weight, in either order.
bool come_in_parts(ProgramRef program, const Places& places, Id weight, int in_dims) {
  return std::all_of(std::begin(orders), std::end(orders), [&](bool by_rows) {
    const OperandShape codes = squares_of(program, weight, in_dims, by_rows);
    return codes.present && places.lies_as(weight, codes) &&
           places.are_cut_alike(weight, codes, in_dims, by_rows);
  });
}

// Says whether all readers of a weight are products that take its codes, as matrices of one shape.
bool all_take_codes(ProgramRef program, Id weight, const std::vector<Reader>& readers) {
  return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](const Reader& reader) {
    return takes_any(program, reader, weight) &&
           in_dims_of(program, reader) == in_dims_of(program, readers.front());
  });
}

// Returns the op that keeps a weight from coming together as codes, or none.
Id reads_as_it_is(ProgramRef program, Id weight) {
  for (const Reader& reader : readers_of(program, weight))
    if (!takes_any(program, reader, weight)) return reader.op;
  return none;
}

// Returns the matrix whose columns are the codes by rows of a rank's part of a weight.
Fp8Squares matrix_of(const OperandShape& local, int in_dims) {
  Fp8Squares squares{1, 1};
  for (int d = 0; d < local.rank; ++d)
    (d < local.rank - in_dims ? squares.columns : squares.rows) *= local.dims[d].extent;
  return squares;
}

// Makes a rank's shard of the codes of a flat parameter's members, and has products read them.
//
// A square of 128 x 128 has one scale, and shards end anywhere. So ranks first take the maximum of each
// square over all ranks: one fp32 for 16384 elements. Then each quantizes its shard exactly as one rank would
// quantize the full matrix. Each member has room for its scales after its codes, so gathered bytes are what
// products read. Example: a weight of 4096 x 4096 sends 1024 maxima once a step and 16 MiB of codes a gather
// instead of 32 MiB. Shards that end at squares were the alternative: on a large mesh most ranks would have
// no part of a weight.
class GatheredCodes {
 public:
  GatheredCodes(ProgramRef program, const Places& places, const FlatParameter& flat)
      : program_(program), flat_(flat), segment_(program, flat.segment) {
    for (const Id weight : flat.members) {
      const std::vector<Reader> readers = readers_of(program, weight);
      in_dims_.push_back(in_dims_of(program, readers.front()));
      squares_.push_back(matrix_of(places.local_shape(weight), in_dims_.back()));
      places_in_peaks_.push_back(peaks_size_);
      peaks_size_ += squares_.back().across() * squares_.back().down();
    }
    peaks_ = program.flat_buffer({.name = "peaks",
                                  .like = flat.own_parameters,
                                  .dtype = DType::f32,
                                  .elements = peaks_size_,
                                  .replicated = true,
                                  .lifetime = BufferLifetime::run});
  }

  // Measures the shard's squares. Collectives stand together: ops that measure come before all of them.
  void measure(Id before) {
    segment_.insert_on(FunctionKind::renew, before, "zero", {peaks_});
    each_member("peak_fp8_squares", {flat_.own_parameters, peaks_}, before);
  }

  void exchange(Id before) {
    segment_.insert_on(FunctionKind::renew, before, "all_reduce_max_update", {peaks_},
                       {{"axis", static_cast<double>(flat_.ranks.number)}});
  }

  // Quantizes the shard. Padding is cleared, since it is sent too.
  void encode(Id before) {
    segment_.insert_on(FunctionKind::renew, before, "zero", {flat_.own_codes});
    each_member("encode_fp8_part", {flat_.own_parameters, peaks_, flat_.own_codes}, before);
  }

  void read() {
    for (std::size_t m = 0; m < squares_.size(); ++m)
      read_member(flat_.members[m], flat_.member_codes[m], in_dims_[m]);
  }

 private:
  void each_member(const char* kind, std::initializer_list<Id> operands, Id before) {
    for (std::size_t m = 0; m < squares_.size(); ++m)
      segment_.insert_on(FunctionKind::renew, before, kind, operands,
                         {{"first", static_cast<double>(flat_.offsets[m])},
                          {"rows", static_cast<double>(squares_[m].columns)},
                          {"columns", static_cast<double>(squares_[m].rows)},
                          {"place", static_cast<double>(places_in_peaks_[m])},
                          {"elements", static_cast<double>(flat_.elements)}});
  }

  void read_member(Id weight, Id rows, int in_dims) {
    for (const Reader& reader : readers_of(program_, weight)) {
      const OperandShape columns = taken_by(program_, reader, weight, false);
      read_codes(program_, reader.op, reader.operand,
                 columns.present ? turn_for(reader, weight, rows, columns, in_dims) : rows);
    }
  }

  // Adds codes by columns for one product, whose memory is free again behind it.
  Id turn_for(const Reader& reader, Id weight, Id rows, const OperandShape& shape, int in_dims) {
    const Id columns = add_codes(program_, weight, shape, ".columns");
    const int out_dims = program_.value(weight).rank - in_dims;
    const OpInfo op = program_.op(reader.op);
    Segment(program_, op.segment)
        .insert_on(
            op.function, place_for(reader.op), "turn_fp8_squares", {rows, columns},
            {{"along_rows", static_cast<double>(in_dims)}, {"along_columns", static_cast<double>(out_dims)}});
    return columns;
  }

  // Returns the op in front of which codes are turned: the one that makes what the product multiplies, since
  // devices fuse a product with what stands right before it.
  Id place_for(Id product) const {
    const OpInfo op = program_.op(product);
    for (const Id before : Segment(program_, op.segment).operations(op.function)) {
      const OpInfo maker = program_.op(before);
      for (std::size_t i = 0; i < maker.operands.size; ++i)
        if (maker.operands[i] == op.operands[0] && access(maker, i) == Access::write) return before;
    }
    return product;
  }

  const ProgramRef program_;
  const FlatParameter& flat_;
  const Segment segment_;
  std::vector<int> in_dims_;
  std::vector<Fp8Squares> squares_;
  std::vector<std::int64_t> places_in_peaks_;
  std::int64_t peaks_size_ = 0;
  Id peaks_ = none;
};

// Writes the codes of one segment's flat parameters, in front of what the strategy of the shards has written.
void write_codes(ProgramRef program, const Places& places, const std::vector<const FlatParameter*>& flats) {
  std::vector<GatheredCodes> all;
  all.reserve(flats.size());
  const std::vector<Id> renew = Segment(program, flats.front()->segment).operations(FunctionKind::renew);
  const Id before = renew.empty() ? none : renew.front();
  for (const FlatParameter* flat : flats) all.emplace_back(program, places, *flat);
  for (GatheredCodes& one : all) one.measure(before);
  for (GatheredCodes& one : all) one.exchange(before);
  for (GatheredCodes& one : all) one.encode(before);
  for (GatheredCodes& one : all) one.read();
}

// ------------------------------------------------------------------- cached weights

// Keeps codes of the weights of one segment for a step.
class CachedWeights {
 public:
  CachedWeights(const Segment& segment, const Places& places)
      : segment_(segment), program_(segment.program()), places_(places) {}

  void run() {
    for (const FunctionKind function : microbatch_functions)
      for (const Id op : segment_.operations(function))
        for (std::size_t i = 0; i < program_.op(op).operands.size; ++i) take(op, i);
  }

 private:
  // Has the op read codes of a weight, by columns or by rows as its rule takes them.
  void take(Id op, std::size_t operand) {
    const OpInfo info = program_.op(op);
    const Id id = info.operands[operand];
    if (id == none || !has_attr(info, "in_dims")) return;
    const ValueInfo value = program_.value(id);
    const bool offloaded = value.role == Role::fetched && is_float(value.dtype);
    if (value.role != Role::parameter && !offloaded) return;
    const auto in_dims = static_cast<int>(program_.attr(op, "in_dims"));
    for (const bool by_rows : orders) {
      const OperandShape codes = squares_of(program_, id, in_dims, by_rows);
      if (!takes_codes(program_, op, operand, codes) || !places_.lies_as(id, codes) ||
          !places_.are_cut_alike(id, codes, in_dims, by_rows))
        continue;
      check_is_there(id, offloaded);
      read_codes(program_, op, operand, codes_of(id, codes, in_dims, by_rows));
      return;
    }
  }

  void check_is_there(Id weight, bool offloaded) const {
    const ValueInfo value = program_.value(weight);
    const std::string_view segment = Segment(program_, value.segment).info().name.view();
    std::string_view name = value.name.view();
    // What is fetched is named after the weight.
    if (constexpr std::string_view copy = ".fetched"; name.ends_with(copy)) name.remove_suffix(copy.size());
    const auto refuse = [&](const std::string& why) {
      throw_error(ErrorCode::unsupported, "cannot cache quantized weights (cache_weights = true): '", name,
                  "' of segment '", segment, "' ", why, "; leave cache_weights out");
    };
    if (value.gathered) refuse(why_gathered(weight));
    if (offloaded) refuse("is offloaded and fetched for each use");
    if (value.segment != segment_.id()) refuse("is another segment's");
  }

  // Says why ranks gather a weight as it is, and not its codes.
  std::string why_gathered(Id weight) const {
    if (const Id op = reads_as_it_is(program_, weight); op != none) {
      const OpInfo reader = program_.op(op);
      const bool counts = !reader.def->in_blocks && has_attr(reader, "fp8");
      return detail::concat("is sharded, and read unquantized by op '", reader.kind.view(), "' of segment '",
                            Segment(program_, reader.segment).info().name.view(), "'",
                            counts ? ", which statistics_every asks for" : "");
    }
    return "is gathered for each use, quantized by precision.gather";
  }

  Id codes_of(Id weight, const OperandShape& shape, int in_dims, bool by_rows) {
    const auto [known, fresh] = known_.try_emplace({weight, by_rows}, none);
    if (!fresh) return known->second;
    known->second = add_codes(program_, weight, shape, by_rows ? ".rows" : ".columns", true);
    segment_.insert_on(FunctionKind::gather, none, "encode_fp8_squares", {weight, known->second},
                       {{"in_dims", static_cast<double>(in_dims)}, {"by_rows", by_rows ? 1.0 : 0.0}});
    return known->second;
  }

  const Segment segment_;
  const ProgramRef program_;
  const Places& places_;
  std::map<std::pair<Id, bool>, Id> known_;
};

// Returns the segments of the model; the first one of a program is the step.
std::vector<Segment> model_segments(ProgramRef program) {
  std::vector<Segment> segments = program.segments();
  segments.erase(segments.begin());
  return segments;
}

}  // namespace

void save_in_codes(ProgramRef program) {
  const Places places(program);
  for (const Segment& segment : model_segments(program)) SavedCodes(segment, places).run();
}

void cache_weights(ProgramRef program) {
  const Places places(program);
  for (const Segment& segment : model_segments(program)) CachedWeights(segment, places).run();
}

bool declare_gathered_codes(ProgramRef program) {
  const Places places(program);
  bool any = false;
  for (const Segment& segment : model_segments(program))
    for (const Id id : segment.values()) {
      const ValueInfo value = program.value(id);
      if (value.role != Role::parameter) continue;
      const std::vector<Reader> readers = readers_of(program, id);
      if (!all_take_codes(program, id, readers)) continue;
      const int in_dims = in_dims_of(program, readers.front());
      if (!come_in_parts(program, places, id, in_dims)) continue;
      const OperandShape codes = squares_of(program, id, in_dims, true);
      const std::string name = std::string(value.name.view()) + ".rows";
      program.gather_as(id, {.name = name,
                             .like = id,
                             .dtype = codes.dtype,
                             .dims = {codes.dims, static_cast<std::size_t>(codes.rank)}});
      any = true;
    }
  return any;
}

void write_gathered_codes(ProgramRef program) {
  const Places places(program);
  std::map<Id, std::vector<const FlatParameter*>> by_segment;
  const Array<FlatParameter> all = program.flat_parameters();
  for (const FlatParameter& flat : all)
    if (flat.member_codes.size > 0) by_segment[flat.segment].push_back(&flat);
  for (const auto& [segment, flats] : by_segment) write_codes(program, places, flats);
}

}  // namespace prun::fp8
