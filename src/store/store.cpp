// The store seam: what all stores have in common.
#include <hookline/store/store.hpp>

namespace hookline {

Store::~Store() = default;

}  // namespace hookline
