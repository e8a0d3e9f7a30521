#include "program/fp8_data.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "ops/base_ops.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- factor codes

// Returns the attributes of an op that reads codes.
std::vector<AttrValue> attrs_with_codes(const Program& program, Id op) {
  std::vector<AttrValue> attrs;
  for (std::uint64_t i = 0; i < program.op(op).def->attr_count; ++i) {
    const char* const name = program.op(op).def->attrs[i].name;
    attrs.push_back({name, std::string_view(name) == "fp8" ? 2.0 : program.attr(op, name)});
  }
  return attrs;
}

}  // namespace

OperandShape shape_of_value(const Value& value) {
  OperandShape shape;
  shape.present = true;
  shape.dtype = value.dtype;
  shape.rank = static_cast<std::int32_t>(value.dims.size());
  std::copy(value.dims.begin(), value.dims.end(), shape.dims);
  return shape;
}

bool takes_codes(const Program& program, Id id, std::size_t operand, const OperandShape& codes) {
  const Op& op = program.op(id);
  if (!codes.present || !op.def->in_blocks || !op.has_attr("in_dims") || program.attr(id, "fp8") != 1)
    return false;
  for (const std::string_view some : {"fp8_from", "fp8_until"})
    if (op.has_attr(some) && program.attr(id, some) != 0) return false;
  if (operand >= op.operands.size() || op.access(operand) != Access::read ||
      std::count(op.operands.begin(), op.operands.end(), op.operands[operand]) != 1)
    return false;
  OpShape shape = program.shape(op);
  std::vector<Attr> attrs = op.attrs;
  for (std::size_t i = 0; i < attrs.size(); ++i)
    if (std::string_view(op.def->attrs[i].name) == "fp8") attrs[i].i = 2;
  shape.attrs = attrs.data();
  shape.operand[operand] = codes;
  return op.def->rule(&shape).ok();
}

OperandShape local_shape_of(const Program& program, Id value) {
  OperandShape part = shape_of_value(program.value(value));
  const std::vector<Dim> local = program.local_dims(value);
  std::copy(local.begin(), local.end(), part.dims);
  return part;
}

bool are_cut_alike(const Program& program, Id factor, const OperandShape& codes, int in_dims, bool by_rows) {
  const OperandShape of_part = fp8_squares_of(local_shape_of(program, factor), in_dims, by_rows);
  const std::vector<AxisPlacement>& placement = program.value(factor).placement;
  for (int d = 0; d < codes.rank; ++d) {
    std::int64_t extent = codes.dims[d].extent;
    for (const AxisPlacement& at : placement)
      if (at.is_sharded() && at.dim == codes.dims[d].name)
        extent /= program.mesh().extent(static_cast<AxisId>(&at - placement.data()));
    if (of_part.rank != codes.rank || of_part.dims[d].extent != extent) return false;
  }
  return true;
}

bool lies_as(const Value& value, const OperandShape& codes) {
  return std::all_of(value.placement.begin(), value.placement.end(), [&](const AxisPlacement& at) {
    if (at.is_incomplete()) return false;
    return !at.is_sharded() || std::any_of(codes.dims, codes.dims + codes.rank,
                                           [&](const Dim& dim) { return dim.name == at.dim; });
  });
}

Id add_codes(Program& program, Id of, const OperandShape& shape, Role role, const char* suffix) {
  const Value& value = program.value(of);
  Value codes;
  codes.name = value.name + suffix;
  codes.role = role;
  codes.dtype = shape.dtype;
  codes.dims.assign(shape.dims, shape.dims + shape.rank);
  codes.segment = value.segment;
  codes.placement = value.placement;
  return program.add_value(std::move(codes));
}

void read_codes(Program& program, Id id, std::size_t operand, Id codes) {
  const Op op = program.op(id);
  std::vector<Id> operands = op.operands;
  operands[operand] = codes;
  const std::vector<AttrValue> attrs = attrs_with_codes(program, id);
  program.replace_op(id, op.kind(), std::move(operands), attrs);
}

namespace {

// ------------------------------------------------------------------- saved codes

// Keeps the values of one segment in codes.
class SegmentCodes {
 public:
  SegmentCodes(Program& program, Id segment) : program_(program), segment_(segment) {}

  void run() {
    const std::vector<Id> forward = ops(FunctionKind::forward);
    for (const Id op : forward)
      for (std::size_t i = 0; i < program_.op(op).operands.size(); ++i)
        if (const Id value = program_.op(op).operands[i];
            value != none && program_.op(op).access(i) == Access::write)
          keep(value);
  }

 private:
  const std::vector<Id>& ops(FunctionKind kind) const { return program_.segment(segment_).ops(kind); }

  void keep(Id id) {
    const Value& value = program_.value(id);
    if (value.role != Role::activation || id == program_.segment(segment_).outgoing ||
        program_.is_carried(id))
      return;
    const std::vector<Id> readers = readers_in_backward(id);
    if (readers.empty() || !program_.op(readers.front()).has_attr("in_dims")) return;
    const double in_dims = program_.attr(readers.front(), "in_dims");
    const OperandShape codes = fp8_squares_of(shape_of_value(value), static_cast<int>(in_dims));
    for (const Id reader : readers)
      if (program_.op(reader).operands[0] != id || !takes_codes(program_, reader, 0, codes) ||
          program_.attr(reader, "in_dims") != in_dims)
        return;
    if (!lies_as(value, codes)) return;
    const Id kept = encode(id, codes, in_dims);
    for (const Id reader : readers) read_codes(program_, reader, 0, kept);
  }

  std::vector<Id> readers_in_backward(Id value) const {
    std::vector<Id> readers;
    for (const FunctionKind kind : backward_functions)
      for (const Id op : ops(kind))
        if (const std::vector<Id>& all = program_.op(op).operands;
            std::find(all.begin(), all.end(), value) != all.end())
          readers.push_back(op);
    return readers;
  }

  // Adds the op that makes the codes, behind the first op of forward that reads the value.
  Id encode(Id value, const OperandShape& shape, double in_dims) {
    const Id kept = add_codes(program_, value, shape, Role::activation, ".codes");
    const AttrValue in{"in_dims", in_dims};
    program_.add_op(segment_, FunctionKind::forward, Part::input, base_ops::encode_fp8_squares, {value, kept},
                    std::span(&in, 1), behind_first_reader(value));
    return kept;
  }

  Id behind_first_reader(Id value) const {
    const std::vector<Id>& all = ops(FunctionKind::forward);
    for (auto op = all.begin(); op != all.end(); ++op)
      for (std::size_t i = 0; i < program_.op(*op).operands.size(); ++i)
        if (program_.op(*op).operands[i] == value && program_.op(*op).access(i) == Access::read)
          return op + 1 == all.end() ? none : op[1];
    return none;
  }

  Program& program_;
  const Id segment_;
};

}  // namespace

void save_in_codes(Program& program) {
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    SegmentCodes(program, segment).run();
}

SavedInCodes saved_in_codes(const Program& program, Id segment) {
  SavedInCodes saved;
  for (const Id id : program.segment(segment).ops(FunctionKind::forward))
    if (const Op& op = program.op(id); op.is(base_ops::encode_fp8_squares)) {
      ++saved.values;
      saved.bytes += program.local_bytes(op.operands[1]);
      saved.bytes_before += program.local_bytes(op.operands[0]);
    }
  return saved;
}

namespace {

// ------------------------------------------------------------------- weight codes

// Keeps codes of the weights of one segment.
class SegmentWeights {
 public:
  SegmentWeights(Program& program, Id segment) : program_(program), segment_(segment) {}

  void run() {
    for (const FunctionKind function : microbatch_functions) {
      const std::vector<Id> ops = program_.segment(segment_).ops(function);
      for (const Id op : ops)
        for (std::size_t i = 0; i < program_.op(op).operands.size(); ++i) take(op, i);
    }
  }

 private:
  // Has the op read codes of a weight, by columns or by rows as its rule takes them.
  void take(Id op, std::size_t operand) {
    const Id id = program_.op(op).operands[operand];
    if (id == none || program_.value(id).role != Role::parameter || !program_.op(op).has_attr("in_dims"))
      return;
    const auto in_dims = static_cast<int>(program_.attr(op, "in_dims"));
    for (const bool by_rows : {true, false}) {
      const OperandShape codes = fp8_squares_of(shape_of_value(program_.value(id)), in_dims, by_rows);
      if (!takes_codes(program_, op, operand, codes) || !lies_as(program_.value(id), codes) ||
          !are_cut_alike(program_, id, codes, in_dims, by_rows))
        continue;
      check_is_there(id);
      read_codes(program_, op, operand, codes_of(id, codes, in_dims, by_rows));
      return;
    }
  }

  void check_is_there(Id weight) const {
    const Value& value = program_.value(weight);
    const auto refuse = [&](const char* why) {
      throw_error(ErrorCode::unsupported,
                  "cannot cache quantized weights (precision.cache_weights = true): '", value.name,
                  "' of segment '", program_.segment(value.segment).name, "' ", why,
                  "; leave precision.cache_weights out");
    };
    if (value.bucket >= 0 && gathers_parameters(program_, program_.bucket_of(value)))
      refuse("is gathered for each use, quantized by precision.gather");
    if (value.place) refuse("is offloaded and fetched for each use");
    if (value.segment != segment_) refuse("is another segment's");
  }

  Id codes_of(Id weight, const OperandShape& shape, int in_dims, bool by_rows) {
    const auto [known, fresh] = known_.try_emplace({weight, by_rows}, none);
    if (!fresh) return known->second;
    known->second = add_codes(program_, weight, shape, Role::fetched, by_rows ? ".rows" : ".columns");
    const AttrValue attrs[] = {{"in_dims", static_cast<double>(in_dims)}, {"by_rows", by_rows ? 1.0 : 0.0}};
    program_.add_op(segment_, FunctionKind::gather, Part::input, base_ops::encode_fp8_squares,
                    {weight, known->second}, attrs);
    return known->second;
  }

  Program& program_;
  const Id segment_;
  std::map<std::pair<Id, bool>, Id> known_;
};

// Says whether a value is codes that a step keeps, or that come together.
bool is_kept(const Program& program, Id id) {
  const Value& value = program.value(id);
  return (value.role == Role::fetched || value.role == Role::view) && value.dtype == DType::u8;
}

// Returns, for codes that an op before has turned, what they were; else the same value.
Id before_turning(const Program& program, const Op& reader, Id codes) {
  for (const Id id : program.segment(reader.segment).ops(reader.function))
    if (const Op& op = program.op(id); op.is(base_ops::turn_fp8_squares) && op.operands[1] == codes)
      return op.operands[0];
  return codes;
}

// Says whether an op reads a parameter as a factor, rather than as a bias: it sums over a dimension of it.
bool is_factor(const Program& program, const Op& op, std::size_t operand) {
  const Value& value = program.value(op.operands[operand]);
  if (value.role != Role::parameter) return false;
  OpShape shape = program.shape(op);
  raise(op.def->rule(&shape));
  return std::any_of(value.dims.begin(), value.dims.end(), [&](const Dim& dim) {
    return std::find(std::begin(shape.sums), std::end(shape.sums), dim.name) != std::end(shape.sums);
  });
}

}  // namespace

void keep_weight_codes(Program& program) {
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    SegmentWeights(program, segment).run();
}

WeightCodes weight_codes(const Program& program, Id segment) {
  WeightCodes codes;
  std::set<Id> kept;
  for (const FunctionKind function : microbatch_functions)
    for (const Id id : program.segment(segment).ops(function)) {
      const Op& op = program.op(id);
      if (!op.def->in_blocks || program.attr(id, "fp8") == 0) continue;
      for (std::size_t i = 0; i < op.operands.size(); ++i) {
        if (op.operands[i] == none || op.access(i) != Access::read) continue;
        const Id read = before_turning(program, op, op.operands[i]);
        const bool is_codes = is_kept(program, read);
        codes.of_codes += is_codes;
        codes.products += is_codes || is_factor(program, op, i);
        codes.come_together |= is_codes && program.value(read).role == Role::view;
        if (is_codes && kept.insert(read).second) codes.bytes += program.local_bytes(read);
      }
    }
  return codes;
}

namespace {

// ------------------------------------------------------------------- gathered codes

constexpr bool orders[] = {true, false};  // by rows, and by columns

// Names an op of a pass that reads a value.
struct Reader {
  Id op = none;
  std::size_t operand = 0;
};

std::vector<Reader> readers_of(const Program& program, Id value) {
  std::vector<Reader> readers;
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const FunctionKind function : microbatch_functions)
      for (const Id op : program.segment(segment).ops(function))
        for (std::size_t i = 0; i < program.op(op).operands.size(); ++i)
          if (program.op(op).operands[i] == value) readers.push_back({op, i});
  return readers;
}

int in_dims_of(const Program& program, const Reader& reader) {
  return static_cast<int>(program.attr(reader.op, "in_dims"));
}

// Returns the codes that an op takes of a weight of its own segment; they are absent if it takes none.
OperandShape taken_by(const Program& program, const Reader& reader, Id weight, bool by_rows) {
  const Value& value = program.value(weight);
  const Op& op = program.op(reader.op);
  if (value.segment != op.segment || !op.has_attr("in_dims")) return {};
  const OperandShape codes = fp8_squares_of(shape_of_value(value), in_dims_of(program, reader), by_rows);
  return takes_codes(program, reader.op, reader.operand, codes) ? codes : OperandShape{};
}

bool takes_any(const Program& program, const Reader& reader, Id weight) {
  return taken_by(program, reader, weight, true).present || taken_by(program, reader, weight, false).present;
}

// Says whether ranks can have codes of their parts of a weight, in either order.
bool come_in_parts(const Program& program, Id weight, int in_dims) {
  return std::all_of(std::begin(orders), std::end(orders), [&](bool by_rows) {
    const OperandShape codes = fp8_squares_of(shape_of_value(program.value(weight)), in_dims, by_rows);
    return codes.present && lies_as(program.value(weight), codes) &&
           are_cut_alike(program, weight, codes, in_dims, by_rows);
  });
}

[[noreturn]] void refuse(const Program& program, Id weight, const Op& reader) {
  const Value& value = program.value(weight);
  const bool counts = !reader.def->in_blocks && reader.has_attr("fp8");
  throw_error(ErrorCode::unsupported, "cannot gather quantized weights (precision.cache_weights = true): '",
              value.name, "' of segment '", program.segment(value.segment).name,
              "' is read unquantized by op '", reader.kind(), "' of segment '",
              program.segment(reader.segment).name, "'; leave precision.cache_weights out",
              counts ? ", or precision.statistics_every" : "");
}

// Changes what reads one weight.
class WeightReaders {
 public:
  WeightReaders(Program& program, Id weight) : program_(program), weight_(weight) {}

  Id run() {
    const std::vector<Reader> readers = readers_of(program_, weight_);
    const int in_dims = in_dims_of(program_, readers.front());
    rows_ = add_codes(program_, weight_, shape(in_dims, true), Role::view, ".rows");
    for (const Reader& reader : readers) {
      const bool turned = taken_by(program_, reader, weight_, false).present;
      read_codes(program_, reader.op, reader.operand, turned ? turn_for(reader) : rows_);
    }
    return rows_;
  }

 private:
  OperandShape shape(int in_dims, bool by_rows) const {
    return fp8_squares_of(shape_of_value(program_.value(weight_)), in_dims, by_rows);
  }

  // Adds codes by columns for one product, whose memory is free again behind it.
  Id turn_for(const Reader& reader) {
    const int in_dims = in_dims_of(program_, reader),
              out_dims = static_cast<int>(program_.value(weight_).dims.size()) - in_dims;
    const Id columns = add_codes(program_, weight_, shape(in_dims, false), Role::activation, ".columns");
    const AttrValue along[] = {{"along_rows", static_cast<double>(in_dims)},
                               {"along_columns", static_cast<double>(out_dims)}};
    const Op& op = program_.op(reader.op);
    program_.add_op(op.segment, op.function, Part::input, base_ops::turn_fp8_squares, {rows_, columns}, along,
                    place_for(reader.op));
    return columns;
  }

  // Returns the op in front of which codes are turned: the one that makes what the product multiplies, since
  // devices fuse a product with what stands right before it.
  Id place_for(Id product) const {
    const Op& op = program_.op(product);
    for (const Id before : program_.segment(op.segment).ops(op.function)) {
      const Op& maker = program_.op(before);
      for (std::size_t i = 0; i < maker.operands.size(); ++i)
        if (maker.operands[i] == op.operands.front() && maker.access(i) == Access::write) return before;
    }
    return product;
  }

  Program& program_;
  const Id weight_;
  Id rows_ = none;
};

}  // namespace

std::optional<Fp8Squares> gathered_squares_of(const Program& program, Id weight) {
  const std::vector<Reader> readers = readers_of(program, weight);
  const auto takes = [&](const Reader& reader) { return takes_any(program, reader, weight); };
  const auto product = std::find_if(readers.begin(), readers.end(), takes);
  if (product == readers.end()) return {};
  const int in_dims = in_dims_of(program, *product);
  if (!come_in_parts(program, weight, in_dims)) return {};
  for (const Reader& reader : readers)
    if (!takes(reader) || in_dims_of(program, reader) != in_dims)
      refuse(program, weight, program.op(reader.op));
  Fp8Squares squares{1, 1};
  const std::vector<Dim> local = program.local_dims(weight);
  const auto lead = static_cast<std::ptrdiff_t>(local.size()) - in_dims;
  for (std::ptrdiff_t d = 0; d < std::ssize(local); ++d)
    (d < lead ? squares.columns : squares.rows) *= local[static_cast<std::size_t>(d)].extent;
  return squares;
}

Id read_gathered_codes(Program& program, Id weight) { return WeightReaders(program, weight).run(); }

}  // namespace prun
