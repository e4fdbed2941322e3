// The work seam.
#include <hookline/group/work.hpp>

namespace hookline {

Work::~Work() = default;

}  // namespace hookline
