// Package nvfm stands where NVIDIA's bindings to its fabric manager stand, which are not served as
// a module. A driver built with it knows no partitions of an NVLink fabric: the gate
// FabricManagerPartitioning, which is off unless it is asked for, fails at its start.
package nvfm

// Return is the result of a call.
type Return int

// The two results that there are here.
const (
	SUCCESS Return = iota
	notBuiltIn
)

// String says what a result means.
func (r Return) String() string {
	if r == SUCCESS {
		return "success"
	}
	return "fabric partitioning is not built into this driver"
}

// Error makes a result an error.
func (r Return) Error() string { return r.String() }

// FabricPartitionId names a partition.
type FabricPartitionId uint32

// FabricGpuInfo is a GPU of a partition. The arrays' sizes are made up: nothing fills them.
type FabricGpuInfo struct {
	PhysicalId          uint32
	Uuid                [80]int8
	PciBusId            [32]int8
	NumNvLinksAvailable uint32
	MaxNumNvLinks       uint32
	NvlinkLineRateMBps  uint32
}

// FabricPartitionInfo is a partition.
type FabricPartitionInfo struct {
	PartitionId FabricPartitionId
	IsActive    uint32
	NumGpus     uint32
	GpuInfo     [1]FabricGpuInfo
}

// FabricPartitionList is what a fabric manager would list.
type FabricPartitionList struct {
	NumPartitions uint32
	PartitionInfo [1]FabricPartitionInfo
}

// Handle is a connection, of which there is never one.
type Handle interface {
	Disconnect() Return
	GetSupportedFabricPartitions() (FabricPartitionList, Return)
	ActivateFabricPartition(FabricPartitionId) Return
	DeactivateFabricPartition(FabricPartitionId) Return
}

// Interface is the library.
type Interface interface {
	Init() Return
	Shutdown() Return
	Connect(...ConnectOption) (Handle, Return)
}

// LibraryOption and ConnectOption say nothing: there is nothing to set.
type (
	LibraryOption struct{}
	ConnectOption struct{}
)

// WithLibraryPath is passed over, as the next three are.
func WithLibraryPath(string) LibraryOption { return LibraryOption{} }

// WithUnixSocket is passed over.
func WithUnixSocket(string) ConnectOption { return ConnectOption{} }

// WithAddress is passed over.
func WithAddress(string) ConnectOption { return ConnectOption{} }

// WithTimeoutMs is passed over.
func WithTimeoutMs(uint32) ConnectOption { return ConnectOption{} }

type absent struct{}

// New returns the library that is not there.
func New(...LibraryOption) Interface { return absent{} }

func (absent) Init() Return                              { return notBuiltIn }
func (absent) Shutdown() Return                          { return SUCCESS }
func (absent) Connect(...ConnectOption) (Handle, Return) { return nil, notBuiltIn }
