// Plugin kind `model`: builds the forward program over whole tensors. It knows nothing of parallelism.
#pragma once

#include "prun/options.hpp"
#include "prun/program.hpp"

namespace prun {

struct ModelContext {
  std::int64_t batch = 0;  // sequences of one microbatch, all data-parallel ranks together
  std::int64_t seq = 0;    // tokens of one sequence
};

// What an author derives from; the constructor takes `const Options&`.
class Model {
 public:
  virtual ~Model() = default;
  virtual void build(const ModelContext& context, ProgramRef program) = 0;
};

class ModelInterface {
 public:
  virtual Status build(const ModelContext& context, const ProgramApi* api, void* program) noexcept = 0;

 protected:
  ~ModelInterface() = default;
};

template <class Author>
class ModelAdapter final : public ModelInterface {
 public:
  explicit ModelAdapter(const Options& options) : author_(options) {}
  Status build(const ModelContext& context, const ProgramApi* api, void* program) noexcept override {
    return guard([&] { static_cast<Model&>(author_).build(context, ProgramRef(api, program)); });
  }

 private:
  Author author_;
};

}  // namespace prun
