// Runs the functions of one segment op by op, each value in memory of its own: no planner, no executor. What
// ops and gradients are tested with. It is the only rank, so that exchanges between ranks are copies.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "program/passes.hpp"
#include "prun/device.hpp"

namespace prun::test {

class Interpreter {
 public:
  Interpreter(const Program& program, DeviceInterface& device) : program_(program), device_(device) {
    raise(device_.create_queue("test", true, &queue_));
    raise(device_.attach(queue_));
    DeviceInfo info;
    raise(device_.info(&info));
    threads_ = info.threads;
  }
  ~Interpreter() { device_.destroy_queue(queue_); }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Zeroed when first asked for.
  std::byte* data(Id id) {
    std::vector<std::byte>& buffer = buffers_[id];
    if (buffer.empty()) buffer.resize(static_cast<std::size_t>(program_.value(id).bytes()) + 64);
    const auto at = reinterpret_cast<std::uintptr_t>(buffer.data());
    return buffer.data() + (64 - at % 64) % 64;
  }
  std::vector<double> numbers(Id id) {
    const Value& value = program_.value(id);
    std::vector<double> out(static_cast<std::size_t>(value.elements()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (value.dtype == DType::f64)
        out[i] = reinterpret_cast<const double*>(data(id))[i];
      else if (value.dtype == DType::f32)
        out[i] = reinterpret_cast<const float*>(data(id))[i];
      else
        out[i] = reinterpret_cast<const bf16*>(data(id))[i];
    }
    return out;
  }
  void set(Id id, const std::vector<double>& numbers) {
    const Value& value = program_.value(id);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (value.dtype == DType::f64)
        reinterpret_cast<double*>(data(id))[i] = numbers[i];
      else if (value.dtype == DType::f32)
        reinterpret_cast<float*>(data(id))[i] = static_cast<float>(numbers[i]);
      else if (value.dtype == DType::bf16)
        reinterpret_cast<bf16*>(data(id))[i] = bf16(static_cast<float>(numbers[i]));
      else if (value.dtype == DType::i32)
        reinterpret_cast<std::int32_t*>(data(id))[i] = static_cast<std::int32_t>(numbers[i]);
      else
        reinterpret_cast<std::int64_t*>(data(id))[i] = static_cast<std::int64_t>(numbers[i]);
    }
  }

  void run(Id segment, FunctionKind kind) {
    for (Id op : program_.segment(segment).ops(kind)) run_op(program_.op(op));
  }

 private:
  void run_op(const Op& op) {
    if (op.exchanges_in_place()) return;
    if (op.exchange()) {
      std::memcpy(data(op.operands[1]), data(op.operands[0]),
                  static_cast<std::size_t>(program_.value(op.operands[0]).bytes()));
      return;
    }
    const OpShape shape = program_.shape(op);
    const KernelDef* def = device_.kernel(op.kind());
    PRUN_CHECK(def, "no kernel for ", op.kind());
    Launch launch;
    launch.kernel = def->select(shape);
    PRUN_CHECK(launch.kernel, "kernel ", op.kind(), " refuses the types");
    std::vector<Tensor> operands;
    for (Id id : op.operands) operands.push_back(id == none ? Tensor{} : tensor(id));
    std::vector<std::byte> workspace(
        static_cast<std::size_t>(def->workspace ? def->workspace(shape, threads_) : 0) + 64);
    launch.op = op.kind();
    launch.args.operands = operands.data();
    launch.args.operand_count = static_cast<std::int32_t>(operands.size());
    launch.args.attrs = op.attrs.data();
    launch.args.workspace =
        workspace.data() + (64 - reinterpret_cast<std::uintptr_t>(workspace.data()) % 64) % 64;
    BoundWork work = nullptr;
    raise(device_.bind(queue_, &launch, 1, &work));
    raise(device_.run(queue_, work));
  }
  Tensor tensor(Id id) {
    const Value& value = program_.value(id);
    Tensor t;
    t.data = data(id);
    t.dtype = value.dtype;
    t.rank = static_cast<std::int32_t>(value.dims.size());
    for (std::size_t d = 0; d < value.dims.size(); ++d) t.dim[d] = value.dims[d].extent;
    return t;
  }

  const Program& program_;
  DeviceInterface& device_;
  Queue queue_ = nullptr;
  std::int32_t threads_ = 1;
  std::map<Id, std::vector<std::byte>> buffers_;
};

}  // namespace prun::test
